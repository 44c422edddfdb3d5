"""Entries: scores with their known labels, checked once before any metric."""

from __future__ import annotations

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
    labels, known = labels.to(scores.device), known.to(scores.device)
    _refuse(~scores.isfinite(), scores, "a score must be finite; did the training diverge?")
    positive, negative = known & (labels == 1), known & (labels == 0)
    _refuse(known & ~positive & ~negative, labels, "a known label must be 0 or 1")
    return Entries(scores, positive, negative)


def _refuse(wrong: Tensor, values: Tensor, expected: str) -> None:
    if wrong.any():
        row, column = wrong.nonzero()[0].tolist()
        raise UserError(
            f"{expected} (found {values[row, column].item()} in row {row}, column {column}; "
            f"{int(wrong.sum())} such entries)"
        )
