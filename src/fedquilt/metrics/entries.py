"""Entries: scores with their known labels, checked once before any metric."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fedquilt.core.errors import UserError


@dataclass(frozen=True)
class Entries:
    """Scores and labels; an entry that is not known is neither positive nor negative."""

    scores: Tensor  # (N, C) floating
    positive: Tensor  # (N, C) bool
    negative: Tensor  # (N, C) bool

    @property
    def known(self) -> Tensor:
        return self.positive | self.negative


def read_entries(scores: Tensor, labels: Tensor, known: Tensor) -> Entries:
    """Check three tensors of shape (N, C); labels that are not known may have any value."""
    check_shapes(scores, labels, known)
    labels, known = labels.to(scores.device), known.to(scores.device)
    _refuse(~scores.isfinite(), scores, "a score must be finite; did the training diverge?")
    positive, negative = known & (labels == 1), known & (labels == 0)
    _refuse(known & ~positive & ~negative, labels, "a known label must be 0 or 1")
    return Entries(scores, positive, negative)


def entries_by_classes(
    scores: Tensor, labels: Tensor, known: Tensor, room: int
) -> Iterator[tuple[slice, Entries]]:
    """Yield some classes at a time, and about ``room`` entries; each class is contiguous."""
    check_shapes(scores, labels, known)
    count, width = scores.shape
    at_once = max(1, room // max(count, 1))
    for first in range(0, width, at_once):
        columns = slice(first, first + at_once)
        by_class = (each[:, columns].T.contiguous().T for each in (scores, labels, known))
        try:
            entries = read_entries(*by_class)
        except UserError:
            read_entries(scores, labels, known)  # says how many entries are wrong in all
            raise
        yield columns, entries


def blocks_of_rows(table: Tensor, room: int) -> Iterator[slice]:
    """Yield some rows at a time, about ``room`` entries of an (N, C) table."""
    at_once = max(1, room // max(table.shape[1], 1))
    for first in range(0, max(len(table), 1), at_once):
        yield slice(first, first + at_once)


def check_shapes(scores: Tensor, labels: Tensor, known: Tensor) -> None:
    """Raise UserError unless all are (N, C), of numbers, labels and truth values."""
    if scores.ndim != 2 or not scores.is_floating_point():
        raise UserError(
            "scores must be floating point of shape (samples, classes), found "
            f"{scores.dtype} of shape {tuple(scores.shape)}"
        )
    for name, tensor in (("labels", labels), ("known", known)):
        if tensor.shape != scores.shape:
            raise UserError(
                f"{name} has shape {tuple(tensor.shape)} but the scores have "
                f"{tuple(scores.shape)}; give one row per sample and one column per class"
            )
    if known.dtype != torch.bool:
        raise UserError(f"known must be bool (True: annotated), found {known.dtype}")


def _refuse(wrong: Tensor, values: Tensor, expected: str) -> None:
    if wrong.any():
        row, column = wrong.nonzero()[0].tolist()
        raise UserError(
            f"{expected} (found {values[row, column].item()} in row {row}, column {column}; "
            f"{int(wrong.sum())} such entries)"
        )
