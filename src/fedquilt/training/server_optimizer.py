"""ServerOptimizer: applies the averaged update to the global weights; averages over rounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedquilt.core.errors import UserError
from fedquilt.core.tree import Weights, add, tree_map, zeros_like


@dataclass(frozen=True, kw_only=True)
class ServerOptimizer:
    """Plain averaging (the default), or averaging with a server learning rate and momentum."""

    lr: float = 1.0  # factor of the mean change
    momentum: float = 0.0  # factor of the last round's step, which is added

    def __post_init__(self) -> None:
        if not 0 < self.lr < math.inf or not 0 <= self.momentum < 1:
            raise UserError(
                "server_step needs lr > 0 and 0 <= momentum < 1, "
                f"found lr = {self.lr}, momentum = {self.momentum}"
            )

    def init(self, parameters: Weights) -> Weights:
        """Return the velocity before the first round; empty without momentum."""
        velocity: Weights = zeros_like(parameters) if self.momentum else {}
        return velocity

    def apply(
        self, parameters: Weights, change: Weights, velocity: Weights
    ) -> tuple[Weights, Weights]:
        """Return the new parameters and the new velocity."""
        if self.momentum:
            change = velocity = add(change, tree_map(lambda speed: self.momentum * speed, velocity))
        return add(parameters, change, self.lr), velocity


def residual_average(
    weights: Weights, saved: Weights, round_index: int, every: int, share: float
) -> tuple[Weights, Weights]:
    """CBAFed: every few rounds, average the model with the last saved one, and save the result.

    Return the model after the round, and the saved one. ``share`` is the saved model's; the first
    model, of round 0, is only saved.
    """
    if round_index % every:
        return weights, saved
    if round_index > 0 and share > 0:
        weights = tree_map(lambda old, new: share * old + (1 - share) * new, saved, weights)
    return weights, weights
