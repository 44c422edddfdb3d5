"""ClientData: the images one client holds, and only the labels it has annotated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from fedquilt.data.allocation import Holding
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.data.splits import stratified_halves


@dataclass(frozen=True)
class ClientData:
    """A view into a data set: pixels are gathered batch by batch, never copied whole."""

    name: str
    images: Tensor  # (N, channels, height, width) uint8, of the whole data set
    indices: Tensor  # (n,) which of them this client holds
    labels: Tensor  # (n, C) uint8
    known: Tensor  # (n, C) bool
    secret: bytes = b""  # shared by the clients and unknown to the server, for keyed hashes
    patients: Tensor | None = None  # (n,) int64: whose image it is, numbered within the client

    @classmethod
    def of(cls, dataset: MultiLabelDataset, holding: Holding, secret: bytes = b"") -> ClientData:
        """The client's own view: a label it has not annotated cannot be read from it."""
        labels = dataset.labels[holding.indices]
        return cls(
            name=holding.name,
            images=dataset.images,
            indices=holding.indices,
            labels=torch.where(holding.known, labels, torch.zeros_like(labels)),
            known=holding.known,
            secret=secret,
            patients=_numbered(dataset.groups, holding.indices),
        )

    def __len__(self) -> int:
        return len(self.indices)

    def to(self, device: torch.device) -> ClientData:
        """The labels on another device; pixels follow batch by batch."""
        labels, known = self.labels.to(device), self.known.to(device)
        if labels is self.labels and known is self.known:
            return self
        return replace(self, labels=labels, known=known)

    def pixels(self, rows: Tensor) -> Tensor:
        """The images at the client's own row numbers, uint8, laid out in memory as all are."""
        # Selecting copies whole images where indexing goes byte by byte: 3 to 30 times faster.
        places = self.indices.index_select(0, rows)
        if self.images.is_contiguous():
            return self.images.index_select(0, places)
        channels_last = self.images.permute(0, 2, 3, 1)
        return channels_last.index_select(0, places).permute(0, 3, 1, 2)

    @cached_property
    def has_annotations(self) -> bool:
        """Of any class; asked for once, as a GPU would have to be waited for."""
        return bool(self.known.any())

    @cached_property
    def is_complete(self) -> bool:
        """Whether no label of any image is missing; likewise."""
        return bool(self.known.all())

    @cached_property
    def rows_with_positives(self) -> Tensor:
        """The row numbers of images with an annotated positive, also asked for once."""
        return self.positives().any(1).nonzero().flatten()

    @cached_property
    def _halves(self) -> dict[int, tuple[Tensor, Tensor]]:
        return {}

    def halves(self, seed: int) -> tuple[Tensor, Tensor]:
        """The row numbers of two stratified halves, drawn by seed and name: once, likewise."""
        if seed not in self._halves:
            first = stratified_halves(self.positives().cpu(), seed, self.name)
            rows = [half.nonzero().flatten().to(self.labels.device) for half in (first, ~first)]
            self._halves[seed] = (rows[0], rows[1])
        return self._halves[seed]

    @property
    def is_decided(self) -> bool:
        """Whether every image has an annotated positive: then of one class each none is missing."""
        return len(self.rows_with_positives) == len(self)

    def annotated_counts(self) -> Tensor:
        """How many images are annotated, per class."""
        return self.known.sum(0)

    def positives(self) -> Tensor:
        """(n, C) bool: the label was annotated and is positive."""
        return self.known & (self.labels == 1)

    def positive_counts(self) -> Tensor:
        """How many images are annotated as positive, per class."""
        return self.positives().sum(0)

    def images_of_several_classes(self) -> int:
        """How many images are annotated as positive of more than one class."""
        return int((self.positives().sum(1) > 1).sum())


def _numbered(groups: Sequence[str] | None, indices: Tensor) -> Tensor | None:
    """Patients as numbers, in the order they are met: no name of a patient goes any further."""
    if groups is None:
        return None
    numbers: dict[str, int] = {}
    return torch.tensor(
        [numbers.setdefault(groups[row], len(numbers)) for row in indices.tolist()],
        dtype=torch.int64,
    )
