"""Small parts that leave with noise: sums over images and their counts, a few times in a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from fedquilt.core.noise import Draws, with_noise
from fedquilt.core.payload import Mean, Part, Sum, Update, over_leading_axes, weight_of
from fedquilt.core.tree import Tree, tree_map
from fedquilt.data.client_data import ClientData
from fedquilt.training.client_step import names_of_draws
from fedquilt.training.contribution import Contribution
from fedquilt.training.method import Method
from fedquilt.training.noise_plan import noised_parts, part_noise, release_rounds
from fedquilt.training.task import Task

SURVEY = -1  # in place of the number of a round


def released_now(method: Method, task: Task, round_index: int) -> Mapping[str, Contribution]:
    """The parts that are released in this round, or in the survey."""
    return {
        name: each
        for name, each in noised_parts(method, task.privacy).items()
        if (round_index == SURVEY) == (each.first_round is None)
        and (each.first_round is None or round_index in release_rounds(each, task))
    }


def with_noisy_parts(
    method: Method,
    task: Task,
    data: ClientData,
    update: Update,
    round_index: int,
    draws: Draws,
    *,
    may_release: bool = True,
) -> Update:
    """Return the update with noise on the agreed parts; in rounds without a release they rest.

    A resting part has no weight, so the server keeps its last mean.
    """
    if not task.privacy.parts:
        return update
    now = released_now(method, task, round_index) if may_release else {}
    source = draws(*names_of_draws(task, data.name, round_index), "noise")
    multiplier = part_noise(method, task).noise_multiplier
    annotated = data.known.any(0).cpu()
    new = dict(update)
    for name in task.privacy.parts:
        if name not in update:
            continue
        part = update[name]
        if name not in now:
            new[name] = _resting(part)
            continue
        contribution = now[name]
        covered = annotated if contribution.classes == "annotated" else torch.ones_like(annotated)
        images = task.privacy.images_per_patient
        reach = contribution.sensitivity(part, int(covered.sum()), images)

        def noised(values: Tensor, reach: float = reach, covered: Tensor = covered) -> Tensor:
            left = with_noise(values, reach, multiplier, source)
            return torch.where(over_leading_axes(covered, values), left, 0.0)

        if isinstance(part, Mean):
            new[name] = _noised_mean(part, noised, contribution.norm, len(data), multiplier * reach)
        else:
            counts: Tree = tree_map(
                lambda leaf: noised(leaf.to(torch.float64)).clamp(0, len(data)).to(leaf.dtype),
                part.value,
            )
            new[name] = Sum(counts, has_noise=True)
    return new


def _noised_mean(
    part: Mean, noised: Callable[[Tensor], Tensor], norm: float, images: int, deviation: float
) -> Mean:
    """Noise on sums and on counts; their quotient is computed from noisy numbers alone.

    A count below the deviation of its noise counts as none.
    """
    weight = weight_of(part)
    counts = (noised(weight * norm) / norm).clamp(0, images)
    counts = torch.where(counts >= max(deviation / norm, 1.0), counts, 0.0)

    def mean(leaf: Tensor) -> Tensor:
        sums = noised(leaf.to(torch.float64) * over_leading_axes(weight, leaf))
        total = over_leading_axes(counts, leaf)
        return torch.where(total > 0, sums / total.clamp(min=1), 0.0).to(leaf.dtype)

    value: Tree = tree_map(mean, part.value)
    return Mean(value, counts, has_noise=True)


def _resting(part: Part) -> Part:
    value: Tree = tree_map(torch.zeros_like, part.value)
    if isinstance(part, Mean):
        return Mean(value, torch.zeros_like(weight_of(part)), has_noise=True)
    return Sum(value, has_noise=True)
