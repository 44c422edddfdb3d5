"""The simplex equiangular tight frame (ETF): class directions as far apart as they can be."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.seeding import generator_for


def simplex_etf(feature_count: int, class_count: int, seed: int | None = None) -> Tensor:
    """Rows (C, d) of length 1 that sum to 0; any two have a product of -1 / (C - 1).

    Without a seed they lie along the first C axes of the features; a seed turns them. Nothing else
    decides their numbers, so that nobody has to send them.
    """
    if class_count < 2:
        raise UserError(
            "an ETF sets classes against each other and needs two of them or more, found "
            f"{class_count}; use the linear head"
        )
    if class_count > feature_count:
        raise UserError(
            f"an ETF has room for as many classes as there are features, {feature_count}, and "
            f"there are {class_count} classes; use a backbone with more features, or the linear "
            "head"
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
    # A factorisation is unique only up to signs, which libraries choose as they like.
    rows: Tensor = (columns * upper.diagonal().sign()).T
    return rows
