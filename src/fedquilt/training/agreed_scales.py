"""The fixed-point scale of every part, from declared ranges and the agreed numbers of images."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fedquilt.core.aggregation_rules import AggregationRules
from fedquilt.core.fixed_point import PartScale, Scales, refuse_gathered
from fedquilt.core.payload import Mean, Update
from fedquilt.training.agreed_bounds import MAX_LOSS, weight_limit
from fedquilt.training.client import LOSS_PART
from fedquilt.training.method import Method
from fedquilt.training.parts import DEFAULT_RANGE
from fedquilt.training.task import Task

BUFFER_RANGE = 2.0**16  # batch-norm variances follow the size of the network's numbers


def round_scales(
    rules: AggregationRules,
    method: Method,
    task: Task,
    round_index: int,
    expected: Update,
    images: Mapping[str, int],
) -> Scales | None:
    """Return the scales of a round's parts; None if floats are added.

    ``images`` are those of the whole population, so that a cohort does not change the scale. The
    range of a part is ``bounds.max_norms`` where it is agreed, or else what the method declares.
    """
    if rules.summation == "plain":
        return None
    refuse_gathered(expected, rules.summation)
    known = {"buffers": BUFFER_RANGE, LOSS_PART: MAX_LOSS}
    ranges = {**known, **method.ranges, **rules.bounds.max_norms}

    def heaviest(name: str) -> list[float]:
        if not isinstance(expected[name], Mean):
            return [1.0] * len(images)
        limits = {
            count: weight_limit(method, task, round_index, name, count)
            for count in set(images.values())
        }
        return [limits[count] for count in images.values()]

    return {
        name: PartScale.of(part, ranges.get(name, DEFAULT_RANGE), heaviest(name))
        for name, part in expected.items()
    }


def survey_scales(
    rules: AggregationRules, expected: Update, images: Collection[int]
) -> Scales | None:
    """Return the scales of the survey: a count is at most the images of its client."""
    if rules.summation == "plain":
        return None
    refuse_gathered(expected, rules.summation)
    return {
        name: PartScale(float(max(images)), PartScale.of(part, 1.0, map(float, images)).value_bits)
        for name, part in expected.items()
    }
