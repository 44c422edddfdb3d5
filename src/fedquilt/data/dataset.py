"""MultiLabelDataset: images with labels of which only the ``known`` entries mean anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class MultiLabelDataset:
    """Images, labels and which labels were annotated; an un-annotated label is not a 0.

    ``known`` is given by whoever made the data. Nothing here, and no method, infers it from
    ``labels``. Images may be memory-mapped: index them, never copy them whole.
    """

    images: Tensor  # (N, channels, height, width) uint8
    labels: Tensor  # (N, C) uint8, meaningful only where known
    known: Tensor  # (N, C) bool
    classes: tuple[str, ...]
    ids: tuple[str, ...]  # stable names of the samples
    groups: tuple[str, ...] | None = None  # the patient of each image
    sites: tuple[str, ...] | None = None  # the site of each image

    def __post_init__(self) -> None:
        count, width = len(self.ids), len(self.classes)
        if self.images.ndim != 4 or self.images.dtype != torch.uint8:
            raise ValueError(
                "images must be uint8 of shape (N, channels, height, width), found "
                f"{self.images.dtype} of shape {tuple(self.images.shape)}"
            )
        for name, tensor, dtype in (
            ("labels", self.labels, torch.uint8),
            ("known", self.known, torch.bool),
        ):
            if tensor.shape != (count, width) or tensor.dtype != dtype:
                raise ValueError(
                    f"{name} must be {dtype} of shape ({count}, {width}), one row per id and one "
                    f"column per class; found {tensor.dtype} of shape {tuple(tensor.shape)}"
                )
        for name, length in (
            ("images", len(self.images)),
            ("groups", count if self.groups is None else len(self.groups)),
            ("sites", count if self.sites is None else len(self.sites)),
        ):
            if length != count:
                raise ValueError(f"{name} has {length} entries for {count} ids")
        for name, values in (("classes", self.classes), ("ids", self.ids)):
            if len(set(values)) != len(values):
                raise ValueError(f"{name} must be distinct, found a repeated name")

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, indices: Tensor | Sequence[int]) -> MultiLabelDataset:
        """The samples at ``indices``, in that order. This copies their pixels."""
        index = torch.as_tensor(indices, dtype=torch.int64)
        rows = index.tolist()
        return replace(
            self,
            images=self.images[index],
            labels=self.labels[index],
            known=self.known[index],
            ids=tuple(self.ids[row] for row in rows),
            groups=None if self.groups is None else tuple(self.groups[row] for row in rows),
            sites=None if self.sites is None else tuple(self.sites[row] for row in rows),
        )


class LabelView(Protocol):
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


def annotated_positives(data: LabelView) -> npt.NDArray[np.bool_]:
    """(N, C): the label was annotated and is positive; a blank cell is never a positive."""
    return np.asarray(((data.labels == 1) & data.known).cpu().numpy(), dtype=np.bool_)
