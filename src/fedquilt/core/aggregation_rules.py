"""AggregationRules: how the server combines updates, agreed before the first round."""

from __future__ import annotations

from dataclasses import dataclass

from fedquilt.core.bounds import DEFAULT_BOUNDS, Bounds
from fedquilt.core.fixed_point import Summation


@dataclass(frozen=True, kw_only=True)
class AggregationRules:
    bounds: Bounds = DEFAULT_BOUNDS  # on weights and norms
    summation: Summation = "plain"


PLAIN_RULES = AggregationRules()
