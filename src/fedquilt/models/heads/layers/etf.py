"""The simplex equiangular tight frame (ETF): maximally separated class directions."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.seeding import generator_for


def simplex_etf(feature_count: int, class_count: int, seed: int | None = None) -> Tensor:
    """Rows (C, d) of length 1 that sum to 0; any two have the inner product -1 / (C - 1).

    Without a seed they lie in the span of the first C axes; a seed rotates them. They depend on
    nothing else, so they need not be sent.
    """
    if class_count < 2:
        raise UserError(
            f"an ETF needs at least two classes, found {class_count}; use the linear head"
        )
    if class_count > feature_count:
        raise UserError(
            f"an ETF needs at least as many features as classes, found {feature_count} features "
            f"and {class_count} classes; use a backbone with more features, or the linear head"
        )
    centred = torch.eye(class_count, dtype=torch.float64) - 1 / class_count
    simplex = math.sqrt(class_count / (class_count - 1)) * centred
    return (simplex @ _axes(feature_count, class_count, seed)).to(torch.float32)


def _axes(feature_count: int, class_count: int, seed: int | None) -> Tensor:
    """Orthonormal rows (C, d), float64."""
    if seed is None:
        return torch.eye(class_count, feature_count, dtype=torch.float64)
    draws = torch.randn(
        feature_count, class_count, dtype=torch.float64, generator=generator_for(seed, "etf")
    )
    columns, upper = torch.linalg.qr(draws)
    # QR is unique only up to signs, which depend on the library; fix them.
    rows: Tensor = (columns * upper.diagonal().sign()).T
    return rows
