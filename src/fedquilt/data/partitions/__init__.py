"""Partitions of the images over clients, by the name a recipe uses."""

from __future__ import annotations

PARTITIONS: dict[str, str] = {
    "dirichlet": "fedquilt.data.partitions.dirichlet:Dirichlet",
    "dirichlet-presence": "fedquilt.data.partitions.dirichlet_presence:DirichletPresence",
    "feature-skew": "fedquilt.data.partitions.feature_skew:FeatureSkew",
    "iid": "fedquilt.data.partitions.iid:Iid",
    "k-modes": "fedquilt.data.partitions.k_modes:KModes",
    "label-count-dirichlet": "fedquilt.data.partitions.dirichlet:LabelCountDirichlet",
    "natural": "fedquilt.data.partitions.natural:Natural",
    "positive-only": "fedquilt.data.partitions.positive_only:PositiveOnly",
    "quantity-skew": "fedquilt.data.partitions.quantity_skew:QuantitySkew",
}
