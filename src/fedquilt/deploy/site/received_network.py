"""Checks on what a site receives before it trains with it: its size, its form and its norm."""

from __future__ import annotations

import math
from typing import Any

from fedquilt.core.tree import byte_count, flatten
from fedquilt.deploy.site.answers import RefusedRequest
from fedquilt.models.network import read_weights
from fedquilt.training.model_checks import MAX_GROWTH, is_finite, trained_norm
from fedquilt.training.task import Task

BROADCAST_FACTOR = 8  # times the network's bytes; methods send at most five times as much
SPARE_BYTES = 2**24  # for what does not grow with the network


class NetworkCheck:
    """What the study's network looks like, for comparison with what arrives."""

    def __init__(self, task: Task) -> None:
        self._like = flatten(read_weights(task.build_network()))
        self._buffers = frozenset(task.layout.buffers)
        self._initial_norm = self._norm(self._like)
        self.max_bytes = BROADCAST_FACTOR * byte_count(self._like) + SPARE_BYTES

    def check_size(self, size: int) -> None:
        if size > self.max_bytes:
            raise RefusedRequest(
                f"the request has {size} bytes; for the study's network {self.max_bytes} are enough"
            )

    def check(self, payload: Any, norm_before: float | None) -> float:
        """Return the norm of the weights, or raise RefusedRequest.

        A norm may grow from round to round as far as the server's own check allows. A crafted
        network that makes one patient's features stand out needs weights beyond that.
        """
        if not isinstance(payload, dict):
            raise RefusedRequest("the broadcast is not a table of tensors")
        weights = flatten(payload.get("weights", {}))
        for name, leaf in weights.items():
            like = self._like.get(name)
            if like is None or like.shape != leaf.shape or like.dtype != leaf.dtype:
                raise RefusedRequest("the weights received are not those of the study's network")
            if not is_finite(leaf):
                raise RefusedRequest("the weights received are not finite")
        norm = self._norm(weights)
        limit = MAX_GROWTH * max(norm_before or self._initial_norm, 1.0)
        if not norm <= limit < math.inf:
            raise RefusedRequest(
                f"the norm of the weights received is {norm:.4g}, more than {MAX_GROWTH:g} times "
                f"that of {'the round before' if norm_before else 'a new network'}"
            )
        return norm

    def _norm(self, weights: Any) -> float:
        return trained_norm(
            {name: leaf for name, leaf in weights.items() if name not in self._buffers}
        )
