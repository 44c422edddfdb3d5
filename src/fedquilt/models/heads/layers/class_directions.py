"""Class directions as a classifier: a score is the product of a feature and a direction."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedquilt.models.heads.layers.class_vectors import ClassVectors


class ClassDirections(nn.Module):
    """Fixed or trained directions, optionally with a learnt factor and a learnt bias per class.

    On pooled features this is the head ``etf``. For a feature per class, use :meth:`own_scores`.
    """

    rows: Tensor  # (C, d)
    scale: nn.Parameter | None  # ()
    bias: nn.Parameter | None  # (C,)

    def __init__(
        self,
        rows: ClassVectors,
        shape: tuple[int, int],
        seed: int,
        *,
        scale: float | None = None,
        bias: bool = False,
    ) -> None:
        super().__init__()
        # Random vectors have about the length 1 of an ETF's.
        rows.add_to(self, "rows", shape, seed, deviation=1 / math.sqrt(shape[1]))
        factor = None if scale is None else nn.Parameter(torch.tensor(float(scale)))
        self.register_parameter("scale", factor)
        self.register_parameter("bias", nn.Parameter(torch.zeros(shape[0])) if bias else None)

    def forward(self, features: Tensor) -> Tensor:
        """Scores of all classes, (..., C), for features (..., d)."""
        return self._adjusted(features @ self.rows.T)

    def own_scores(self, per_class: Tensor) -> Tensor:
        """Score of each class for its own feature, (B, C), from features (B, C, d)."""
        return self._adjusted((per_class * self.rows).sum(-1))

    def cosines(self, features: Tensor) -> Tensor:
        """Cosines between features and directions, (..., C), without factor and bias."""
        return F.normalize(features, dim=-1, eps=1e-6) @ F.normalize(self.rows, dim=-1).T

    def _adjusted(self, scores: Tensor) -> Tensor:
        if self.scale is not None:
            scores = scores * self.scale
        return scores if self.bias is None else scores + self.bias


def build_etf_head(
    feature_count: int,
    class_count: int,
    seed: int,
    train_classifier: bool = False,
    etf_seed: int | None = None,
    scale: float | None = None,
    bias: bool = False,
) -> ClassDirections:
    """Build the head ``etf``: pooled features times a simplex ETF."""
    rows = ClassVectors(trained=train_classifier, etf_seed=etf_seed)
    return ClassDirections(rows, (class_count, feature_count), seed, scale=scale, bias=bias)
