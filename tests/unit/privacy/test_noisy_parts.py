"""Small parts that leave with noise: sensitivity by trying every image, and what stays away."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from support.tiny_federation import make_federation
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.gaussian_accountant import GaussianRelease, epsilon_of
from fedquilt.core.noise import SeededNoise
from fedquilt.core.payload import Mean, Sum, Update, weight_of
from fedquilt.data.client_data import ClientData
from fedquilt.losses.prototypes import class_prototypes, clipped_rows, decided_share
from fedquilt.methods.fedavg import FedAvg
from fedquilt.methods.fedirm import FedIRM
from fedquilt.methods.fedmlp import FedMLP
from fedquilt.privacy.disclosure_floor import DisclosureFloor
from fedquilt.privacy.noisy_parts import SURVEY, released_now, with_noisy_parts
from fedquilt.training.contribution import Contribution
from fedquilt.training.noise_plan import (
    limited_to_units,
    noised_parts,
    part_noise,
    release_rounds,
)
from fedquilt.training.privacy_settings import Privacy
from fedquilt.training.task import Task

PRIVATE = Privacy(epsilon=3.0, parts=("prototypes",))
METHOD = FedMLP(warmup_rounds=2)


class Silent(SeededNoise):
    def gaussian(self, count: int) -> Tensor:
        return torch.zeros(count, dtype=torch.float64)


def site(images: int = 30, annotated: tuple[int, ...] = (0, 2)) -> tuple[Task, ClientData]:
    federation = make_federation(annotated=(annotated, (1,)), images_each=images, rounds=12)
    return replace(federation.task, privacy=PRIVATE), federation.clients["site-0"]


def features_of(data: ClientData, clip: float | None = 1.0) -> Tensor:
    """Long features, so that clipping matters."""
    made = torch.randn(100, 8, generator=torch.Generator().manual_seed(3)) * 5
    found = made[data.indices]
    return found if clip is None else clipped_rows(found, clip)


def prototypes_of(data: ClientData, clip: float | None = 1.0) -> Mean:
    means, counts = class_prototypes(features_of(data, clip), data.labels, data.known)
    return Mean(means, counts)


def without(data: ClientData, rows: list[int]) -> ClientData:
    kept = torch.tensor([row for row in range(len(data)) if row not in rows])
    return replace(
        data, indices=data.indices[kept], labels=data.labels[kept], known=data.known[kept]
    )


def numbers(part: Mean | Sum, norm: float) -> Tensor:
    """What the noise is added to: sums, and counts scaled to the norm."""
    if isinstance(part, Sum):
        return part.value.double().flatten()
    weight = weight_of(part)
    shape = (*weight.shape, *(1,) * (part.value.ndim - weight.ndim))
    sums = part.value.double() * weight.reshape(shape)
    return torch.cat([sums.flatten(), weight.flatten() * norm])


@pytest.mark.parametrize("images", [1, 3])
def test_no_image_moves_prototypes_by_more_than_their_sensitivity(images: int) -> None:
    _, data = site()
    bound = Contribution(norm=1.0).sensitivity(prototypes_of(data), 2, images)
    assert bound == pytest.approx(images * math.sqrt(2 * (1 + 1)))  # A (c^2 + kappa^2)
    whole = numbers(prototypes_of(data), 1.0)
    moved = [
        float(
            (whole - numbers(prototypes_of(without(data, [*range(row, row + images)])), 1.0)).norm()
        )
        for row in range(len(data) - images)
    ]
    assert max(moved) <= bound * 1.0001
    if images == 1:
        assert max(moved) > 0.99 * bound  # it is no looser than it must be


def test_no_image_moves_counts_and_shares_by_more_than_their_sensitivity() -> None:
    _, data = site()

    def shares(some: ClientData) -> Mean:
        logits = features_of(some, None)[:, : some.known.shape[1]]
        return Mean(*decided_share(logits, ~some.known, 0.3, 0.7))

    def counts(some: ClientData) -> Sum:
        return Sum(some.annotated_counts().double())

    for made, classes in ((shares, data.known.shape[1]), (counts, 2)):
        bound = Contribution().sensitivity(made(data), classes, 1)
        whole = numbers(made(data), 1.0)
        for row in range(len(data)):
            less = numbers(made(without(data, [row])), 1.0)
            assert float((whole - less).norm()) <= bound * 1.0001


def test_without_noise_the_means_are_the_same() -> None:
    task, data = site()
    part = prototypes_of(data)
    sent = with_noisy_parts(METHOD, task, data, {"prototypes": part}, 1, Silent)["prototypes"]
    seen = weight_of(sent) > 0
    assert seen.any()
    assert torch.equal(weight_of(sent)[seen], weight_of(part)[seen])
    assert torch.allclose(sent.value[seen], part.value[seen], atol=1e-4)
    few = weight_of(part) < part_noise(METHOD, task).noise_multiplier * 2
    assert not (seen & few).any()  # a count below the deviation of its noise is none


def test_noise_has_the_deviation_of_the_plan_and_spares_other_classes() -> None:
    task, data = site(images=90)
    part = prototypes_of(data)
    drawn = []
    for number in range(300):
        draws = lambda *names, number=number: SeededNoise("draw", number)  # noqa: E731
        sent = with_noisy_parts(METHOD, task, data, {"prototypes": part}, 1, draws)["prototypes"]
        weight = weight_of(sent)
        assert not weight[1].any()  # the class is not annotated
        if bool((weight[0] > 0).all()):
            drawn.append(sent.value[0].double() * weight[0][:, None])
    deviation = part_noise(METHOD, task).noise_multiplier * 2  # sqrt(2 * 2) images
    noise = torch.stack(drawn) - (part.value[0] * weight_of(part)[0][:, None])
    assert len(drawn) > 100
    assert float(noise.std()) == pytest.approx(deviation, rel=0.05)


def test_parts_rest_between_releases_and_when_the_budget_is_spent() -> None:
    task, data = site()
    few = replace(task, privacy=replace(PRIVATE, releases=3))
    part: Update = {"prototypes": prototypes_of(data), "body": Sum(torch.ones(2))}
    contribution = noised_parts(METHOD, few.privacy)["prototypes"]
    assert [*release_rounds(contribution, few)] == [1, 5, 9]
    released = []
    for index in range(12):
        sent = with_noisy_parts(METHOD, few, data, part, index, Silent)
        assert sent["body"] is part["body"]
        released.append(bool((weight_of(sent["prototypes"]) > 0).any()))
    assert [index for index, was in enumerate(released) if was] == [1, 5, 9]
    frozen = with_noisy_parts(METHOD, few, data, part, 1, Silent, may_release=False)
    assert not weight_of(frozen["prototypes"]).any()
    assert not frozen["prototypes"].value.any()
    noise = part_noise(METHOD, few)
    assert epsilon_of([GaussianRelease(noise.noise_multiplier, count=3)], 1e-5) <= 3.0


def test_counts_of_the_survey_leave_with_noise_once() -> None:
    method = FedAvg(positive_weight_from="population")
    task, data = site()
    task = replace(task, privacy=Privacy(epsilon=3.0, parts=("positives", "annotated")))
    sent = with_noisy_parts(method, task, data, method.survey(data), SURVEY, SeededNoise)
    assert torch.equal(sent["annotators"].value, method.survey(data)["annotators"].value)
    assert not torch.equal(sent["positives"].value, data.positive_counts().double())
    assert float(sent["positives"].value[1]) == 0.0
    assert bool(((sent["annotated"].value >= 0) & (sent["annotated"].value <= len(data))).all())
    assert released_now(method, task, 0) == {}
    noise = part_noise(method, task).noise_multiplier
    assert epsilon_of([GaussianRelease(noise, count=2)], 1e-5) == pytest.approx(3.0, abs=1e-3)


def test_the_floor_leaves_noisy_parts_alone() -> None:
    """Whether the true count is below the floor must not show."""
    task, data = site()
    update = with_noisy_parts(METHOD, task, data, {"prototypes": prototypes_of(data)}, 1, Silent)
    left = DisclosureFloor(25).on_client(METHOD, data, {}, update)
    assert torch.equal(weight_of(left["prototypes"]), weight_of(update["prototypes"]))
    bare = DisclosureFloor(25).on_client(METHOD, data, {}, {"prototypes": prototypes_of(data)})
    assert not weight_of(bare["prototypes"]).any()


def test_patients_keep_as_many_images_as_agreed() -> None:
    _, data = site(images=6)
    data = replace(data, patients=torch.tensor([0, 1, 0, 0, 2, 1]))
    privacy = Privacy(epsilon=1.0, training=True, unit="patient", images_per_patient=2)
    left = limited_to_units(data, privacy)
    assert left.indices.tolist() == [0, 1, 2, 4, 5]
    assert left.patients.tolist() == [0, 1, 0, 2, 1]
    assert limited_to_units(data, Privacy()) is data
    with pytest.raises(UserError, match="names no patients"):
        limited_to_units(replace(data, patients=None), privacy)


@pytest.mark.parametrize(
    ("method", "part"),
    [
        (FedIRM(), "relation"),
        (FedMLP(prototype_weights="clients"), "prototypes"),
        (FedAvg(), "body"),
    ],
)
def test_a_part_without_a_known_bound_is_refused(method, part) -> None:
    with pytest.raises(UserError, match="does not say how much"):
        noised_parts(method, Privacy(epsilon=1.0, parts=(part,)))
