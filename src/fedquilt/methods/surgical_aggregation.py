"""Surgical Aggregation (Kulkarni et al., ML4H 2024): clients with partly shared sets of classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedquilt.core.errors import UserError
from fedquilt.losses.class_prior import PositiveWeight
from fedquilt.training.averaging import HeadRows, WeightedAveraging, Weighting
from fedquilt.training.method import Stage


@dataclass(frozen=True, kw_only=True)
class SurgicalAggregation(WeightedAveraging):
    """Average the body over all clients, and each head row over the annotators of its class.

    All clients have the same weight. A head row without an annotator in the cohort is left
    unchanged. The loss uses annotated labels only, as if a client had no other outputs.

    The authors' code first trains each client's head alone, with the backbone frozen, before the
    first round: set ``head_steps``. A client that is not in the first cohort skips this.

    Not covered: that code keeps batch norm at its pretrained statistics (they call it FedBN+).
    """

    positive_weight: PositiveWeight = "none"  # w_c, from annotated entries only
    weighting: Weighting = "uniform"  # of clients, for everything but head rows
    head_rows: HeadRows = "annotators"  # weights of head rows: annotators only, as in the body
    head_steps: int = 0  # steps that train the head alone, in the first round

    trains_image_by_image: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.head_steps < 0:
            raise UserError(f"method.head_steps must be 0 or more, found {self.head_steps}")

    def stages(self, round_index: int) -> tuple[Stage, ...]:
        if round_index > 0 or self.head_steps == 0:
            return super().stages(round_index)
        head_alone = Stage(name="head", steps=self.head_steps, frozen=("backbone.",))
        return (head_alone, *super().stages(round_index))
