"""DP-SGD: gradients of single images, clipping, noise, and what one image can change."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from support.tiny_federation import make_federation
from torch import Tensor

from fedquilt.core.gaussian_accountant import GaussianRelease, epsilon_of
from fedquilt.core.noise import SeededNoise
from fedquilt.core.tree import Weights
from fedquilt.data.augmentation.views import Views
from fedquilt.data.batches import Batch, make_batch
from fedquilt.data.client_data import ClientData
from fedquilt.methods.fedavg import FedAvg
from fedquilt.methods.fedavg_pl import FedAvgPL
from fedquilt.methods.fedprox import FedProx
from fedquilt.methods.quilt import Quilt
from fedquilt.methods.surgical_aggregation import SurgicalAggregation
from fedquilt.models.trained_part import TrainedPart
from fedquilt.training.client import LOSS_PART, Workspace, open_round, run_client
from fedquilt.training.client_step import stage_optimizer, trained_parameters
from fedquilt.training.local_training import LocalTraining
from fedquilt.training.method import Local, Method, Stage
from fedquilt.training.noise_plan import private_steps, training_noise
from fedquilt.training.privacy_settings import Privacy
from fedquilt.training.private_step import (
    clipped_sum,
    image_gradients,
    private_gradients,
    take_private_step,
)
from fedquilt.training.private_training import check_private_training
from fedquilt.training.task import Task

PRIVATE = Privacy(epsilon=8.0, delta=1e-4, training=True)
APART = {"positive_weight": "none", "weighting": "uniform"}
METHODS: list[Method] = [
    FedAvg(**APART),
    FedAvgPL(**APART),
    FedProx(**APART, mu=0.1),
    SurgicalAggregation(),
    Quilt(weighting="uniform", logit_adjustment=False),
]


class Silent(SeededNoise):
    """Draws units, but adds no noise."""

    def gaussian(self, count: int) -> Tensor:
        return torch.zeros(count, dtype=torch.float64)


class Everyone(Silent):
    def uniform(self, count: int) -> Tensor:
        return torch.zeros(count, dtype=torch.float64)


class Nobody(SeededNoise):
    def uniform(self, count: int) -> Tensor:
        return torch.full((count,), 0.999999, dtype=torch.float64)


def opened(
    method: Method,
    *,
    backbone: str = "small-cnn",
    norm: str = "as built",
    train: TrainedPart = "all",
    **changes,
):
    federation = make_federation(images_each=12, backbone=backbone)
    spec = replace(federation.task.model, norm=norm, train=train)
    task = replace(
        federation.task,
        model=spec,
        privacy=replace(PRIVATE, **changes),
        preprocessing=replace(federation.task.preprocessing, views=Views(weak="plain")),
    )
    data = federation.clients["site-0"]
    known = data.known.clone()
    known[3] = False  # an image without any annotated label
    data = replace(data, known=known)
    workspace = Workspace.of(task, torch.device("cpu"))
    received = {"weights": workspace.trained.read()}
    local = open_round(method, task, workspace, data, received, {}, 0)
    return task, workspace, local, trained_parameters(workspace.training, Stage())


def batch_of(task: Task, data: ClientData, rows: list[int]) -> Batch:
    return make_batch(
        data,
        torch.tensor(rows),
        ("weak",),
        task.preprocessing,
        torch.Generator(),
        data.known.device,
    )


def one_by_one(method: Method, local: Local, parameters, task: Task, rows: list[int]) -> Weights:
    """The gradients of batches of one image, by ordinary backward passes."""
    found: dict[str, list[Tensor]] = {name: [] for name in parameters}
    for row in rows:
        for parameter in parameters.values():
            parameter.grad = None
        method.image_loss(local, batch_of(task, local.data, [row])).backward()
        for name, parameter in parameters.items():
            gradient = parameter.grad
            found[name].append(
                torch.zeros_like(parameter) if gradient is None else gradient.clone()
            )
            parameter.grad = None
    return {name: torch.stack(each) for name, each in found.items()}


@pytest.mark.parametrize("method", METHODS, ids=lambda each: type(each).__name__)
def test_gradients_of_images_are_those_of_batches_of_one(method: Method) -> None:
    task, _, local, parameters = opened(method)
    rows = [0, 3, 5, 11]
    expected = one_by_one(method, local, parameters, task, rows)
    found = image_gradients(method, local, parameters, batch_of(task, local.data, rows))
    for name in parameters:
        assert torch.allclose(found[name], expected[name], atol=1e-6)
    if isinstance(method, FedAvgPL | SurgicalAggregation) and not isinstance(method, Quilt):
        assert all(not leaf[1].any() for leaf in found.values())  # nothing is annotated there
    assert any(leaf[0].any() for leaf in found.values())


@pytest.mark.parametrize("backbone", ["small-resnet", "resnet18"])
def test_group_norm_makes_residual_networks_trainable(backbone: str) -> None:
    method = FedAvgPL(**APART)
    task, _, local, parameters = opened(method, backbone=backbone, norm="group")
    check_private_training(method, task)
    rows = [0, 1, 2]
    expected = one_by_one(method, local, parameters, task, rows)
    found = image_gradients(method, local, parameters, batch_of(task, local.data, rows))
    for name in parameters:
        scale = float(expected[name].abs().max()) + 1e-6
        assert torch.allclose(found[name] / scale, expected[name] / scale, atol=1e-4), name


def test_gradients_are_clipped_by_unit_and_summed() -> None:
    method = FedAvgPL(**APART)
    task, _, local, parameters = opened(method)
    rows, clip = [0, 1, 2, 4], 1e-3  # below every norm
    batch = batch_of(task, local.data, rows)
    gradients = image_gradients(method, local, parameters, batch)
    flat = torch.cat([leaf.flatten(1) for leaf in gradients.values()], 1)

    def expected(units: list[list[int]]) -> Tensor:
        sums = [flat[each].sum(0) for each in units]
        return torch.stack([each * min(1.0, clip / float(each.norm())) for each in sums]).sum(0)

    for units, groups in (
        (torch.arange(4), [[0], [1], [2], [3]]),
        (torch.tensor([5, 7, 5, 2]), [[0, 2], [1], [3]]),
    ):
        found = clipped_sum(method, local, parameters, batch, units, clip)
        together = torch.cat([leaf.flatten() for leaf in found.values()])
        assert torch.allclose(together, expected(groups), atol=1e-8)
        assert float(together.norm()) <= clip * len(groups) * 1.0001
    loose = clipped_sum(method, local, parameters, batch, torch.arange(4), 1e9)
    assert torch.allclose(
        torch.cat([leaf.flatten() for leaf in loose.values()]), flat.sum(0), atol=1e-6
    )


@pytest.mark.parametrize("size", [0, 1, 12])
def test_a_step_divides_by_the_expected_size_whatever_was_drawn(size: int) -> None:
    method = FedAvgPL(**APART, training=LocalTraining(batch_size=4))
    task, _, local, parameters = opened(method)
    if size == 1:
        local = replace(local, data=_rows(local.data, [0]))
    source = {0: Nobody("t"), 1: Everyone("t"), 12: Everyone("t")}[size]
    (step,) = private_gradients(method, task, local, parameters, source, 1)
    flat = torch.cat([leaf.flatten() for leaf in step.values()])
    rate = min(1.0, 4 / len(local.data))
    if size == 0:
        deviation = training_noise(method, task, 12).noise_multiplier * task.privacy.clip / 4
        assert 0.9 * deviation < float(flat.std()) < 1.1 * deviation  # nothing but noise
        return
    rows = list(range(len(local.data)))
    batch = batch_of(task, local.data, rows)
    total = clipped_sum(method, local, parameters, batch, torch.arange(len(rows)), 1.0)
    expected = torch.cat([leaf.flatten() for leaf in total.values()]) / (rate * len(rows))
    assert torch.allclose(flat, expected, atol=1e-5)


def _rows(data: ClientData, rows: list[int]) -> ClientData:
    kept = torch.tensor(rows)
    return replace(
        data, indices=data.indices[kept], labels=data.labels[kept], known=data.known[kept]
    )


def test_one_image_moves_the_sum_by_no_more_than_the_clip() -> None:
    """Sensitivity, over all images: without noise, a step with and without each one."""
    method = FedAvgPL(**APART, training=LocalTraining(batch_size=12))
    task, _, local, parameters = opened(method, clip=0.01)
    (whole,) = private_gradients(method, task, local, parameters, Everyone("t"), 1)
    for row in range(len(local.data)):
        rest = [each for each in range(12) if each != row]
        less = replace(local, data=_rows(local.data, rest))
        (other,) = private_gradients(method, task, less, parameters, Everyone("t"), 1)
        # 12 are expected with the image and 11 without it; the sums count.
        gap = torch.cat([(12 * whole[name] - 11 * other[name]).flatten() for name in whole]).norm()
        assert float(gap) <= 0.01 * 1.001


def test_the_penalty_of_fedprox_is_added_after_clipping() -> None:
    method = FedProx(**APART, mu=10.0, training=LocalTraining(optimizer="sgd", lr=0.1))
    task, workspace, local, parameters = opened(method)
    before = workspace.trained.read()
    local.received = {"weights": {name: weight - 1.0 for name, weight in before.items()}}
    zeros = {name: torch.zeros_like(weight) for name, weight in parameters.items()}
    optimizer = stage_optimizer(method, task, local, parameters)
    take_private_step(method, local, zeros, parameters, before, optimizer)
    for name, weight in workspace.trained.read().items():
        assert torch.allclose(weight, before[name] - 0.1 * 10.0 * 1.0, atol=1e-5)


def test_the_noise_of_a_run_costs_the_budget_and_no_more() -> None:
    method = FedAvgPL(**APART, training=LocalTraining(batch_size=4, epochs=2))
    task = replace(make_federation(rounds=5).task, privacy=PRIVATE)
    assert private_steps(method, 0, 21) == 2 * 5
    noise = training_noise(method, task, 21)
    assert noise.sampling_rate == 4 / 21
    spent = epsilon_of([replace(noise, count=50)], 1e-4)
    assert 7.9 < spent <= 8.0
    surgical = SurgicalAggregation(head_steps=7, training=method.training)
    assert private_steps(surgical, 0, 21) == 17
    assert training_noise(surgical, task, 21).noise_multiplier > noise.noise_multiplier


def test_no_statistic_of_the_data_leaves_beside_the_weights() -> None:
    method = FedAvgPL(**APART)
    task, workspace, local, _ = opened(method)
    update, state = run_client(method, task, workspace, local.data, local.received, {}, 0)
    assert float(update[LOSS_PART].value) == 0.0
    assert update[LOSS_PART].weight == 1.0
    assert update["body"].weight == 1.0
    again, _ = run_client(method, task, workspace, local.data, local.received, {}, 0)
    assert torch.equal(update["head"].value["head.bias"], again["head"].value["head.bias"])
    assert "optimizer" not in state


def test_frozen_batch_norm_mixes_no_images() -> None:
    """It stays in evaluation mode, so every gradient is that of a batch of one."""
    method = FedAvgPL(**APART)
    task, _, local, parameters = opened(method, backbone="small-resnet", train="head")
    check_private_training(method, task)
    assert not any("bn" in name for name in parameters)
    rows = [0, 1, 2]
    expected = one_by_one(method, local, parameters, task, rows)
    found = image_gradients(method, local, parameters, batch_of(task, local.data, rows))
    assert all(torch.allclose(found[name], expected[name], atol=1e-6) for name in parameters)
    assert any(leaf.any() for leaf in found.values())


def test_composing_the_release_of_one_step_is_what_the_ledger_charges() -> None:
    assert epsilon_of([GaussianRelease(2.0, 0.1, 300)], 1e-6) == pytest.approx(5.0821, abs=0.01)
