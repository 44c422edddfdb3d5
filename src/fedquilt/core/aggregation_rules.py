"""AggregationRules: how updates travel and are combined, agreed before the first round."""

from __future__ import annotations

from dataclasses import dataclass

from fedquilt.core.bounds import DEFAULT_BOUNDS, Bounds
from fedquilt.core.compact_payload import AS_THEY_ARE, PayloadOptions
from fedquilt.core.errors import UserError
from fedquilt.core.fixed_point import Summation
from fedquilt.core.robust import NOT_ROBUST, Robust

SEEING = ("plain", "ring")  # summations in which the server sees every update


@dataclass(frozen=True, kw_only=True)
class AggregationRules:
    bounds: Bounds = DEFAULT_BOUNDS  # on weights and norms
    summation: Summation = "plain"
    robust: Robust = NOT_ROBUST
    payload: PayloadOptions = AS_THEY_ARE

    def __post_init__(self) -> None:
        if self.robust.rule != "none" and self.summation not in SEEING:
            raise UserError(
                f"robust.rule = {self.robust.rule!r} compares the updates of the sites, and with "
                f"summation = {self.summation!r} the server sees only their sum; choose against "
                "what to guard: a site that lies (summation = 'plain' or 'ring'), or a curious "
                "server (robust.rule = 'none')"
            )


PLAIN_RULES = AggregationRules()
