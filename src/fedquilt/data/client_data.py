"""ClientData: the images one client holds, and only the labels it has annotated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.wording import counted
from fedquilt.data.allocation import Holding
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.data.splits import stratified_halves


@dataclass(frozen=True)
class ClientData:
    """A view into a data set: pixels are gathered per batch, the data set is never copied."""

    name: str
    images: Tensor  # (N, channels, height, width) uint8, of the whole data set
    indices: Tensor  # (n,) the images of this client
    labels: Tensor  # (n, C) uint8
    known: Tensor  # (n, C) bool
    secret: bytes = b""  # shared by the clients and unknown to the server, for keyed hashes
    patients: Tensor | None = None  # (n,) int64: the patient of each image, numbered per client

    @classmethod
    def of(cls, dataset: MultiLabelDataset, holding: Holding, secret: bytes = b"") -> ClientData:
        """Build a client's view; labels that it has not annotated are set to 0."""
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
        """Move the labels to another device; pixels are moved per batch."""
        labels, known = self.labels.to(device), self.known.to(device)
        if labels is self.labels and known is self.known:
            return self
        return replace(self, labels=labels, known=known)

    def pixels(self, rows: Tensor) -> Tensor:
        """The images at ``rows``, indices into the client's data; uint8, same memory format."""
        # index_select copies whole images, indexing byte by byte: 3 to 30 times faster.
        indices = self.indices.index_select(0, rows)
        if self.images.is_contiguous():
            return self.images.index_select(0, indices)
        channels_last = self.images.permute(0, 2, 3, 1)
        return channels_last.index_select(0, indices).permute(0, 3, 1, 2)

    # The following four are cached, because computing them waits for a GPU.

    @cached_property
    def has_annotations(self) -> bool:
        """Whether any label is annotated."""
        return bool(self.known.any())

    @cached_property
    def is_complete(self) -> bool:
        """Whether every label of every image is annotated."""
        return bool(self.known.all())

    @cached_property
    def rows_with_positives(self) -> Tensor:
        """The indices of images with an annotated positive."""
        return self.positives().any(1).nonzero().flatten()

    @cached_property
    def _halves(self) -> dict[int, tuple[Tensor, Tensor]]:
        return {}

    def halves(self, seed: int) -> tuple[Tensor, Tensor]:
        """The indices of two stratified halves, drawn from the seed and the client's name."""
        if seed not in self._halves:
            first = stratified_halves(self.positives().cpu(), seed, self.name)
            rows = [half.nonzero().flatten().to(self.labels.device) for half in (first, ~first)]
            self._halves[seed] = (rows[0], rows[1])
        return self._halves[seed]

    @property
    def is_decided(self) -> bool:
        """Whether every image has an annotated positive.

        If images have exactly one class each, then no positive is missing.
        """
        return len(self.rows_with_positives) == len(self)

    def first_images_of_patients(self, most: int) -> ClientData:
        """Keep at most so many images of each patient, the first ones."""
        assert self.patients is not None
        seen: dict[int, int] = {}
        rows = []
        for row, patient in enumerate(self.patients.tolist()):
            seen[patient] = seen.get(patient, 0) + 1
            if seen[patient] <= most:
                rows.append(row)
        if len(rows) == len(self):
            return self
        kept = torch.tensor(rows)
        return replace(
            self,
            indices=self.indices[kept],
            labels=self.labels[kept],
            known=self.known[kept],
            patients=self.patients[kept],
        )

    def annotated_counts(self) -> Tensor:
        """The number of annotated images per class."""
        return self.known.sum(0)

    def positives(self) -> Tensor:
        """(n, C) bool: whether the label is annotated and positive."""
        return self.known & (self.labels == 1)

    def positive_counts(self) -> Tensor:
        """The number of annotated positives per class."""
        return self.positives().sum(0)

    def images_of_several_classes(self) -> int:
        """The number of images with annotated positives of more than one class."""
        return int((self.positives().sum(1) > 1).sum())

    def require_one_class_per_image(self, advice: str) -> None:
        """Raise UserError, ending in ``advice``, if an image is positive for several classes."""
        several = self.images_of_several_classes()
        if several:
            raise UserError(
                f"client {self.name!r} holds "
                f"{counted(several, 'image that is', 'images that are')} positive for several "
                f"classes; {advice}"
            )

    def require_two_in_a_batch(self, batch_size: int) -> None:
        """Raise UserError if batch norm of single features would see one image only."""
        if len(self) < 2 or batch_size < 2:
            raise UserError(
                "this network needs at least 2 images in a batch for batch norm, found "
                f"{len(self)} at client {self.name!r} and batch_size = {batch_size}"
            )


def _numbered(groups: Sequence[str] | None, indices: Tensor) -> Tensor | None:
    """Patients as numbers in order of appearance, so that a client never holds patient names."""
    if groups is None:
        return None
    numbers: dict[str, int] = {}
    return torch.tensor(
        [numbers.setdefault(groups[row], len(numbers)) for row in indices.tolist()],
        dtype=torch.int64,
    )
