"""The label-aware head (LADM): a feature per class, asked for by the class's own query."""

from __future__ import annotations

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.models.feature_map import MapHead, feature_map
from fedquilt.models.heads.layers.class_directions import ClassDirections
from fedquilt.models.heads.layers.class_vectors import ClassVectors
from fedquilt.models.heads.layers.cross_attention import CrossAttention
from fedquilt.models.heads.layers.position_encoding import PositionEncoding
from fedquilt.models.network import Network, Output

HEAD_COUNT = 4


class LADMHead(MapHead):
    """Every class has a query that gathers a feature from all places of the feature map.

    Where the query is a vector of the simplex ETF, the classifier's direction may be the same one.
    """

    query: Tensor  # (C, d)

    def __init__(
        self, query: ClassVectors, classifier: ClassDirections, seed: int, *, knows_places: bool
    ) -> None:
        super().__init__()
        class_count, feature_count = classifier.rows.shape
        query.add_to(self, "query", (class_count, feature_count), seed)
        self.attention = CrossAttention(feature_count, HEAD_COUNT)
        self.position_code = PositionEncoding(feature_count) if knows_places else None
        self.classifier = classifier

    def forward(self, features: Tensor) -> Output:
        per_class = self.attention(self.query, self._tokens(features))
        return Output(features.mean((2, 3)), self.classifier.own(per_class), per_class)

    def attention_maps(self, features: Tensor) -> Tensor:
        """How each class's attention is spread, (B, C, height, width)."""
        shares = self.attention.shares(self.query, self._tokens(features))
        return shares.reshape(*shares.shape[:2], *features.shape[2:])

    def _tokens(self, features: Tensor) -> Tensor:
        """Keys and values, (B, places, d)."""
        if self.position_code is not None:
            features = features + self.position_code(features)
        return features.flatten(2).transpose(1, 2)


def build_ladm_head(
    feature_count: int,
    class_count: int,
    seed: int,
    query: str = "etf",
    train_query: bool = False,
    classifier: str = "etf",
    train_classifier: bool = False,
    etf_seed: int | None = None,
    position_code: bool = True,
    scale: float | None = None,
    bias: bool = False,
) -> LADMHead:
    """``query`` and ``classifier`` start as an ETF or at random, and are trained or not."""
    directions = ClassDirections(
        ClassVectors(classifier, train_classifier, etf_seed),
        (class_count, feature_count),
        seed,
        scale=scale,
        bias=bias,
    )
    asked = ClassVectors(query, train_query, etf_seed)
    return LADMHead(asked, directions, seed, knows_places=position_code)


def attention_maps(network: Network, images: Tensor) -> Tensor:
    """Where each class looks in each image: (B, C, height, width), a map sums to 1."""
    if not isinstance(network.head, LADMHead):
        raise UserError(
            "only the head 'ladm' attends to places class by class, found "
            f"{type(network.head).__name__}; train with method fednca-ml, or set model.head to ladm"
        )
    with torch.no_grad():
        return network.head.attention_maps(feature_map(network.backbone, images))
