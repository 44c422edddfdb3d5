"""The bounds of a round of a method: what a client with so many images may weigh, part by part."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from torch import Tensor

from fedquilt.core.bounds import HELD, Bounds, RoundBounds
from fedquilt.core.norms import EarlierNorms
from fedquilt.core.robust import ENOUGH, Robust, RobustRound
from fedquilt.training.client import LOSS_PART
from fedquilt.training.method import Method
from fedquilt.training.task import Task

# A client that has memorised its images has a far smaller loss than others, so a loss is
# not compared with the median. It is only shown, never part of the model.
MAX_LOSS = 1e6


def round_bounds(
    settings: Bounds,
    method: Method,
    task: Task,
    round_index: int,
    *,
    before: EarlierNorms,
    images: Callable[[str], int | None],
    hold: int = HELD,
) -> RoundBounds:
    """Return the bounds of a round; ``images`` is a client's number, None if it is not known."""

    def limit(client: str, part: str) -> float:
        count = images(client)
        return math.inf if count is None else weight_limit(method, task, round_index, part, count)

    def steps(client: str) -> int:
        return most_steps(method, round_index, images(client) or 1)

    norms = {LOSS_PART: MAX_LOSS, **settings.max_norms}
    return RoundBounds(
        replace(settings, max_norms=norms),
        before,
        limit,
        steps=steps,
        squares=method.squared_parts,
        hold=hold,
    )


def weight_limit(method: Method, task: Task, round_index: int, part: str, images: int) -> float:
    """The largest weight that an honest client with this many images gives to a part."""
    if part == LOSS_PART:
        return float(most_steps(method, round_index, images))
    return method.weight_limits(images, task.class_count).get(part, float(images))


def most_steps(method: Method, round_index: int, images: int) -> int:
    """The most steps of a client's round: the smallest batch has one image."""
    training = method.training
    stages = [stage for stage in method.stages(round_index) if stage.trains]
    return sum(stage.steps or training.steps or training.epochs * images for stage in stages)


def round_rule(settings: Robust, annotates: Callable[[str], Tensor]) -> RobustRound | None:
    """Return the robust rule of a round, if one is asked for.

    ``annotates`` is (C,) bool, the classes of a client. The loss is only shown, so it stays a mean.
    """
    if settings.rule == "none":
        return None
    return RobustRound(settings, exempt=frozenset({LOSS_PART}), annotates=annotates)


def undefended_notice(
    settings: Robust, classes: Sequence[str], annotates: Iterable[Tensor]
) -> str | None:
    """Return a sentence on the classes that no robust rule can defend; (C,) bool per client."""
    counts = sum(each.cpu().long() for each in annotates)
    if settings.rule == "none" or not isinstance(counts, Tensor):
        return None
    few = [name for name, count in zip(classes, counts.tolist()) if count < ENOUGH]
    if not few:
        return None
    return (
        f"robust.rule = {settings.rule!r} is no defence for {', '.join(few)}: with one or two "
        "annotators of a class, nobody can tell which one lies"
    )
