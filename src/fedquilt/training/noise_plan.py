"""How much noise a budget asks for, known before the first round: it depends on no label."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from fedquilt.core.errors import UserError
from fedquilt.core.gaussian_accountant import GaussianRelease, noise_multiplier_for
from fedquilt.data.batches import Pool
from fedquilt.data.client_data import ClientData
from fedquilt.training.client_step import step_count
from fedquilt.training.contribution import Contribution
from fedquilt.training.method import Method
from fedquilt.training.privacy_settings import Privacy
from fedquilt.training.task import Task

cached_multiplier = lru_cache(maxsize=4096)(noise_multiplier_for)


def training_noise(method: Method, task: Task, images: int) -> GaussianRelease:
    """The noise of one step of DP-SGD at a client with so many images.

    A client that is drawn in some rounds only does not use up its budget.
    """
    rate = min(1.0, method.training.batch_size / images)
    count = sum(private_steps(method, index, images) for index in range(task.round_count))
    noise = cached_multiplier(
        task.privacy.budget, task.privacy.delta, sampling_rate=rate, count=count
    )
    return GaussianRelease(noise, rate)


def private_steps(method: Method, round_index: int, images: int) -> int:
    """How many steps a client takes in a round."""
    pool = Pool(method.training.batch_size, method.views(round_index))
    return sum(step_count(method, stage, pool, images) for stage in method.stages(round_index))


def part_noise(method: Method, task: Task) -> GaussianRelease:
    """The noise of one release of one part."""
    declared = noised_parts(method, task.privacy)
    count = sum(
        1 if each.first_round is None else len(release_rounds(each, task))
        for each in declared.values()
    )
    return GaussianRelease(
        cached_multiplier(task.privacy.budget, task.privacy.delta, sampling_rate=1.0, count=count)
    )


def noised_parts(method: Method, privacy: Privacy) -> Mapping[str, Contribution]:
    """The parts that leave with noise; raise UserError for one without a known bound."""
    known = method.contributions(privacy)
    for name in privacy.parts:
        if name not in known:
            found = ", ".join(map(repr, known)) or "none"
            raise UserError(
                f"privacy.parts names {name!r}, and with these settings {type(method).__name__} "
                f"does not say how much of it one image makes up (it does of: {found}), so no "
                "noise is known to hide an image in it"
            )
    return {name: known[name] for name in privacy.parts}


def release_rounds(part: Contribution, task: Task) -> range:
    """The rounds in which a part is released: as many as agreed, spread evenly."""
    assert part.first_round is not None
    left = max(0, task.round_count - part.first_round)
    every = max(1, -(-left // task.privacy.releases))
    return range(part.first_round, task.round_count, every)


def limited_to_units(data: ClientData, privacy: Privacy) -> ClientData:
    """Leave out further images of a patient, so that a patient cannot weigh more than agreed.

    Raise UserError if a failure as rare as delta would still be expected for one of them.
    """
    if not privacy.adds_noise:
        return data
    if privacy.unit == "image":
        _check_delta(data.name, len(data), privacy)
        return data
    if data.patients is None:
        raise UserError(
            f"privacy.unit is 'patient', and the label table of {data.name!r} names no patients; "
            "name the patient column, or protect images (privacy.unit = 'image')"
        )
    limited = data.first_images_of_patients(privacy.images_per_patient)
    _check_delta(data.name, len(data.patients.unique()), privacy)
    return limited


def _check_delta(name: str, units: int, privacy: Privacy) -> None:
    if privacy.delta * units >= 1:
        raise UserError(
            f"privacy.delta = {privacy.delta:g} allows to publish one {privacy.unit} of the "
            f"{units:,} of {name!r}; expected far less than {1 / units:.2g}"
        )
