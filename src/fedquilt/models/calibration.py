"""A head in closed form: ridge regression of labels on features, from sums over clients."""

from __future__ import annotations

import torch
from torch import Tensor


def class_moments(features: Tensor, positives: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """Per class, over annotated samples: sums of v v^T, (C, d, d); over positives of v, (C, d).

    Both add up over clients. They are float64: a small eigenvalue must survive the sum.
    """
    wide = features.to(torch.float64)
    # Class by class: all at once would take a tensor of samples times classes times features.
    squares = torch.stack([(wide * mask[:, None]).T @ wide for mask in known.T])
    return squares, (positives & known).T.to(torch.float64) @ wide


def ridge_rows(squares: Tensor, products: Tensor, ridge: float, otherwise: Tensor) -> Tensor:
    """Rows (C, d) that solve (squares + ridge I) row = products, class by class.

    A class without an annotated sample keeps its row of ``otherwise``.
    """
    size = squares.shape[-1]
    regular = squares + ridge * torch.eye(size, dtype=squares.dtype, device=squares.device)
    rows = torch.linalg.solve(regular, products[..., None]).squeeze(-1)
    seen = squares.diagonal(dim1=1, dim2=2).sum(1) > 0
    return torch.where(seen[:, None], rows.to(otherwise.dtype), otherwise)
