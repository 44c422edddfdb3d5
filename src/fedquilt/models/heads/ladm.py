"""The label-aware head (LADM): a feature per class, by attention with the class's query."""

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
    """Every class has a query that attends to all positions of the feature map.

    If queries start as the simplex ETF, the classifier's directions may be the same vectors.
    """

    query: Tensor  # (C, d)

    def __init__(
        self, query: ClassVectors, classifier: ClassDirections, seed: int, *, encode_positions: bool
    ) -> None:
        super().__init__()
        class_count, feature_count = classifier.rows.shape
        query.add_to(self, "query", (class_count, feature_count), seed)
        self.attention = CrossAttention(feature_count, HEAD_COUNT)
        self.position_code = PositionEncoding(feature_count) if encode_positions else None
        self.classifier = classifier

    def forward(self, features: Tensor) -> Output:
        per_class = self.attention(self.query, self._tokens(features))
        return Output(features.mean((2, 3)), self.classifier.own_scores(per_class), per_class)

    def attention_maps(self, features: Tensor) -> Tensor:
        """Attention weights of each class, (B, C, height, width)."""
        weights = self.attention.attention_weights(self.query, self._tokens(features))
        return weights.reshape(*weights.shape[:2], *features.shape[2:])

    def _tokens(self, features: Tensor) -> Tensor:
        """Keys and values, (B, positions, d)."""
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
    """``query`` and ``classifier`` start as ``"etf"`` or ``"random"``, fixed or trained."""
    directions = ClassDirections(
        ClassVectors(classifier, train_classifier, etf_seed),
        (class_count, feature_count),
        seed,
        scale=scale,
        bias=bias,
    )
    queries = ClassVectors(query, train_query, etf_seed)
    return LADMHead(queries, directions, seed, encode_positions=position_code)


def attention_maps(network: Network, images: Tensor) -> Tensor:
    """Attention maps of each class in each image, (B, C, height, width); each sums to 1."""
    if not isinstance(network.head, LADMHead):
        raise UserError(
            "only the head 'ladm' has attention maps per class, found "
            f"{type(network.head).__name__}; train with method fednca-ml, or set model.head to ladm"
        )
    with torch.no_grad():
        return network.head.attention_maps(feature_map(network.backbone, images))
