"""What a protocol may look at: the annotated labels and where images come from, never pixels."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor


class Labelled(Protocol):
    """Anything with labels; a ``MultiLabelDataset`` is one."""

    @property
    def labels(self) -> Tensor: ...  # (N, C) uint8, meaningful only where known

    @property
    def known(self) -> Tensor: ...  # (N, C) bool

    @property
    def classes(self) -> tuple[str, ...]: ...

    @property
    def groups(self) -> tuple[str, ...] | None: ...  # the patient of each image

    @property
    def sites(self) -> tuple[str, ...] | None: ...


def annotated_positives(data: Labelled) -> npt.NDArray[np.bool_]:
    """(N, C): the label was annotated and is positive; a blank cell is never a positive."""
    return np.asarray(((data.labels == 1) & data.known).cpu().numpy(), dtype=np.bool_)
