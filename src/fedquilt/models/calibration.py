"""Closed-form head: ridge regression of labels on features, from sums over clients."""

from __future__ import annotations

import torch
from torch import Tensor


def class_moments(features: Tensor, positives: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """Return, per class, the sum of v v^T over annotated samples and of v over positives.

    Their shapes are (C, d, d) and (C, d). Both can be summed over clients. They are float64, to
    keep small eigenvalues accurate.
    """
    wide = features.to(torch.float64)
    # One class at a time: a single product would need a tensor of (N, C, d).
    squares = torch.stack([(wide * mask[:, None]).T @ wide for mask in known.T])
    return squares, (positives & known).T.to(torch.float64) @ wide


def ridge_rows(squares: Tensor, products: Tensor, ridge: float, otherwise: Tensor) -> Tensor:
    """Rows (C, d) that solve (squares + ridge I) row = products, class by class.

    A class without an annotated sample gets its row of ``otherwise``.
    """
    size = squares.shape[-1]
    regularised = squares + ridge * torch.eye(size, dtype=squares.dtype, device=squares.device)
    rows = torch.linalg.solve(regularised, products[..., None]).squeeze(-1)
    seen = squares.diagonal(dim1=1, dim2=2).sum(1) > 0
    return torch.where(seen[:, None], rows.to(otherwise.dtype), otherwise)
