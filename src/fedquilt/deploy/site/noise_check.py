"""What ``fedquilt site check`` says about noise: how much, on what, and what it costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from fedquilt.core.wording import counted
from fedquilt.data.client_data import ClientData
from fedquilt.deploy.site.noise import Budget, planned_charges
from fedquilt.deploy.study import Study
from fedquilt.training.noise_plan import (
    noised_parts,
    part_noise,
    private_steps,
    release_rounds,
    training_noise,
)
from fedquilt.training.task import Task


@dataclass(frozen=True)
class NoiseCheck:
    """Lines for a person, and the same facts for a program."""

    lines: tuple[str, ...]
    facts: dict[str, Any]
    refused: str | None  # why the site's policy does not accept the study's noise
    parts: tuple[str, ...] | None  # that leave with noise; None: all of a round

    def has_noise(self, part: str, when: str) -> bool:
        """Whether a part leaves with noise; those of images for validation and test never do."""
        if self.parts is None:
            return when in ("every round", "most rounds", "some rounds")
        return part in self.parts


def check_noise(task: Task, data: ClientData, budget: Budget) -> NoiseCheck:
    """Describe the noise of a study at a site with these images."""
    study, privacy = budget.study, task.privacy
    refused = None
    if budget.max_epsilon is not None and not privacy.adds_noise:
        refused = f"policy.max_epsilon = {budget.max_epsilon:g}, and the study adds no noise"
    if not privacy.adds_noise:
        told = "noise: none, so nothing is proven about what the numbers say of a single image"
        lines = [told] if refused is None else [told, f"refused: {refused}"]
        return NoiseCheck(tuple(lines), {"privacy": None}, refused, ())
    method = study.recipe.method
    planned = planned_charges(method, task, study.hash, len(data))
    spent, after = budget.spent(by_all=True), budget.spent(planned, by_all=True)
    limit = budget.max_epsilon
    if limit is not None and after > limit * (1 + 1e-6):
        refused = (
            f"after this study the site would have spent epsilon {shown_epsilon(after)}, and its "
            f"policy allows {limit:g} (max_epsilon)"
        )
    what = f"one {privacy.unit}"
    if privacy.unit == "patient":
        what += f" with at most {counted(privacy.images_per_patient, 'image')}"
    lines = [
        f"noise: epsilon {privacy.budget:g} at delta {privacy.delta:g} for {what}, over the whole "
        "study"
    ]
    lines += _of_training(study, task, data) if privacy.training else _of_parts(study, task, data)
    lines.append(
        f"spent so far at this site: epsilon {shown_epsilon(spent)}; after this study: "
        f"{shown_epsilon(after)}" + ("" if limit is None else f"; its policy allows {limit:g}")
    )
    if refused is not None:
        lines.append(f"refused: {refused}")
    facts = {
        "epsilon": privacy.budget,
        "delta": privacy.delta,
        "unit": privacy.unit,
        "spent": _finite(spent),
        "spent_after_this_study": _finite(after),
        "max_epsilon": limit,
    }
    parts = None if privacy.training else privacy.parts
    return NoiseCheck(tuple(lines), {"privacy": facts}, refused, parts)


def shown_epsilon(value: float) -> str:
    return "without bound" if math.isinf(value) else f"{value:.3g}"


def _of_training(study: Study, task: Task, data: ClientData) -> list[str]:
    method = study.recipe.method
    noise = training_noise(method, task, len(data))
    steps = sum(private_steps(method, index, len(data)) for index in range(task.round_count))
    return [
        f"every one of {steps:,} steps draws {noise.sampling_rate:.1%} of the images, clips each "
        f"gradient to {task.privacy.clip:g} and adds {noise.noise_multiplier:.3g} times that as "
        "noise",
        "so all weights of a round have noise; what is computed from images for validation and "
        "test has none",
    ]


def _of_parts(study: Study, task: Task, data: ClientData) -> list[str]:
    method, lines = study.recipe.method, []
    noise = part_noise(method, task).noise_multiplier
    annotated = int(data.known.any(0).sum())
    for name, each in noised_parts(method, task.privacy).items():
        classes = annotated if each.classes == "annotated" else task.class_count
        rounds = None if each.first_round is None else release_rounds(each, task)
        when = (
            "once, before the first round"
            if rounds is None
            else f"in {len(rounds)} of {counted(task.round_count, 'round')}"
        )
        lines.append(
            f"{name}: {noise:.3g} times what one {task.privacy.unit} can change is added as noise "
            f"({counted(classes, 'class', 'classes')}); it leaves {when} and is not sent otherwise"
        )
    return [*lines, "the weights, and all other parts, leave without noise"]


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else value
