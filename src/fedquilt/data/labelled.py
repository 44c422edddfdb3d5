"""What a protocol may look at: the annotated labels and where images come from, never pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
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


@dataclass(frozen=True, kw_only=True)
class LabelTable:
    """Labels without images, for planning a study from a spreadsheet."""

    labels: Tensor  # (N, C) uint8, meaningful only where known
    known: Tensor  # (N, C) bool
    classes: tuple[str, ...]
    groups: tuple[str, ...] | None = None
    sites: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        shape = (len(self.labels), len(self.classes))
        for name, tensor, dtype in (
            ("labels", self.labels, torch.uint8),
            ("known", self.known, torch.bool),
        ):
            if tensor.shape != shape or tensor.dtype != dtype:
                raise ValueError(
                    f"{name} must be {dtype} of shape {shape}, "
                    f"found {tensor.dtype} of shape {tuple(tensor.shape)}"
                )
        for name, values in (("groups", self.groups), ("sites", self.sites)):
            if values is not None and len(values) != len(self.labels):
                raise ValueError(f"{name} has {len(values)} entries for {len(self.labels)} rows")


def annotated_positives(data: Labelled) -> npt.NDArray[np.bool_]:
    """(N, C): the label was annotated and is positive; a blank cell is never a positive."""
    return np.asarray(((data.labels == 1) & data.known).cpu().numpy(), dtype=np.bool_)
