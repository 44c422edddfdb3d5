"""MultiLabelDataset and LabelView: labels that are meaningful only where ``known``."""

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
    """Images, labels and the annotation mask ``known``; an unannotated label is not a negative.

    ``known`` comes with the data and is never inferred from ``labels``. Images may be
    memory-mapped: index them, do not copy all of them.
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
                raise ValueError(f"{name} must be distinct, found a repeated one")

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, indices: Tensor | Sequence[int]) -> MultiLabelDataset:
        """The samples at ``indices``, in that order. This copies their pixels."""
        index = torch.as_tensor(indices, dtype=torch.int64)
        positions = index.tolist()
        return replace(
            self,
            images=self.images[index],
            labels=self.labels[index],
            known=self.known[index],
            ids=tuple(self.ids[each] for each in positions),
            groups=None if self.groups is None else tuple(self.groups[each] for each in positions),
            sites=None if self.sites is None else tuple(self.sites[each] for each in positions),
        )


class LabelView(Protocol):
    """Labels without images: what partitions and annotation rules see of a data set."""

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
    """(N, C) bool: whether the label is annotated and positive."""
    return np.asarray(((data.labels == 1) & data.known).cpu().numpy(), dtype=np.bool_)
