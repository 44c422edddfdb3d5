"""FPSL: head rows of annotators, and head and body trained on different halves."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from support.pixel_logits import make_local
from support.tiny_federation import Federation, make_federation, make_method
from torch import Tensor, nn, tensor

from fedquilt.core.tree import Weights, same_bits
from fedquilt.data.batches import Batch
from fedquilt.losses.cross_entropy import masked_bce
from fedquilt.methods.fpsl import FPSL, evaluation_features
from fedquilt.models.network import Network, read_weights, write_weights
from fedquilt.training.client import Workspace, open_round, run_client
from fedquilt.training.client_step import step_batches
from fedquilt.training.method import Local, Method
from fedquilt.training.rounds import start_server

CPU = torch.device("cpu")
SGD = {"optimizer": "sgd", "lr": 0.1}


def by_sgd(**settings: object) -> FPSL:
    method = make_method("fpsl", **settings)
    assert isinstance(method, FPSL)
    return replace(method, training=replace(method.training, **SGD))


def opened(
    method: Method, federation: Federation, client: str = "site-0"
) -> tuple[Local, list[Batch]]:
    """A client in its first round, and what its steps draw."""
    task = federation.task
    workspace = Workspace.of(task, CPU)
    received = method.broadcast(start_server(method, task, federation.engine()))
    data = federation.clients[client]
    local = open_round(method, task, workspace, data, received, {}, 0)
    write_weights(local.model, method.initial_weights(local))
    local.state = method.begin(local)
    return local, list(step_batches(method, task, local, method.pools(local), 3, CPU))


def alternating(local: Local, batches: list[Batch], lr: float) -> Weights:
    """The card's scheme, written out: the head's step, then the body's."""
    model, weight = local.model, local.state["positive_weight"]
    head, body = (torch.optim.SGD(part.parameters(), lr) for part in (model.head, model.backbone))
    for batch in batches:
        model.eval()
        with torch.no_grad():
            features = model.backbone(batch.views[0])
        loss = masked_bce(model.head(features), batch.labels, batch.known, weight)
        head.zero_grad()
        loss.backward()
        head.step()
        model.train()
        other = batch.beside[0]
        logits = model(other.views[0]).logits
        body.zero_grad()
        masked_bce(logits, other.labels, other.known, weight).backward()
        body.step()
    return read_weights(model)


@pytest.mark.parametrize("backbone", ["small-cnn", "small-resnet"])
def test_with_sgd_it_is_the_alternating_scheme_bit_for_bit(backbone: str) -> None:
    method = by_sgd()
    federation = make_federation(annotated=((0, 1), (2,)), backbone=backbone)
    local, batches = opened(method, federation)
    expected = alternating(local, batches, lr=0.1)
    steps = replace(method, training=replace(method.training, steps=3))
    update, _ = run_client(
        steps,
        federation.task,
        Workspace.of(federation.task, CPU),
        local.data,
        local.received,
        {},
        0,
    )
    before = local.received["weights"]
    sent = {name: leaf for part in update.values() for name, leaf in _leaves(part.value)}
    for name, leaf in expected.items():
        assert torch.equal(sent[name], leaf - before[name]), name
    assert not torch.equal(before["head.weight"], expected["head.weight"])


def _leaves(value: object) -> list[tuple[str, Tensor]]:
    return list(value.items()) if isinstance(value, dict) else []


def gradients(method: FPSL, local: Local, batch: Batch) -> Weights:
    """Of one step; batch-norm statistics are put back."""
    before = read_weights(local.model)
    local.model.zero_grad(set_to_none=True)
    method.loss(local, batch).backward(inputs=list(local.model.parameters()))
    write_weights(local.model, before)
    return {
        name: torch.zeros_like(w) if w.grad is None else w.grad.clone()
        for name, w in local.model.named_parameters()
    }


def blinded(batch: Batch) -> Batch:
    return replace(batch, known=torch.zeros_like(batch.known))


@pytest.mark.parametrize("unrolled", [False, True])
def test_each_half_moves_its_own_part_of_the_network(unrolled: bool) -> None:
    method = by_sgd(unrolled=unrolled)
    local, batches = opened(method, make_federation(backbone="small-resnet"))
    batch = batches[0]
    both = gradients(method, local, batch)
    of_head = gradients(method, local, replace(batch, beside=(blinded(batch.beside[0]),)))
    of_body = gradients(method, local, replace(blinded(batch), beside=batch.beside))
    for name in both:
        if name.startswith("head."):
            assert torch.equal(of_head[name], both[name])
            assert not of_body[name].any()
        else:
            assert not of_head[name].any()
    assert both["head.weight"].any()
    assert any(of_body[name].any() for name in both)


def test_batch_norm_sees_the_body_half_only() -> None:
    method = by_sgd()
    local, batches = opened(method, make_federation(backbone="small-resnet"))
    batch = batches[0]
    before = read_weights(local.model)
    evaluation_features(local.model.backbone, batch.views[0], tracked=False)
    assert same_bits(read_weights(local.model), before)
    assert local.model.backbone.training

    method.loss(local, batch)
    after = read_weights(local.model)
    write_weights(local.model, before)
    method.loss(local, replace(batch, views=(torch.zeros_like(batch.views[0]),)))
    assert same_bits(read_weights(local.model), after)
    assert not same_bits(before, after)


def test_rows_of_unannotated_classes_have_no_gradient() -> None:
    method = by_sgd()
    local, batches = opened(method, make_federation(annotated=((0, 2), (1,))))
    found = gradients(method, local, batches[0])
    assert not found["head.weight"][1].any()
    assert not found["head.bias"][1].any()
    assert bool(found["head.weight"][[0, 2]].any(1).all())


class Slope(nn.Module):
    """One feature, the pixel times a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(tensor([0.7], dtype=torch.float64))

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1) * self.theta


def one_weight_client(method: FPSL) -> tuple[Local, Batch]:
    """Feature theta x, logit phi feature; head half: x = 1, y = 1; body half: x = 2, y = 0."""
    known = torch.ones(1, 1, dtype=torch.bool)
    local = make_local(method, known, torch.ones(1, 1))
    head = nn.Linear(1, 1, bias=False, dtype=torch.float64)
    nn.init.constant_(head.weight, 0.5)
    local.model = Network(Slope(), head)
    local.state = {"positive_weight": torch.ones(1, dtype=torch.float64)}

    def batch_of(pixel: float, label: float, *beside: Batch) -> Batch:
        image = torch.full((1, 1, 1, 1), pixel, dtype=torch.float64)
        label_ = torch.full((1, 1), label, dtype=torch.float64)
        return Batch((image,), label_, known, torch.zeros(1), beside=beside)

    return local, batch_of(1.0, 1.0, batch_of(2.0, 0.0))


def outer_slope(theta: float, unrolled: bool) -> float:
    """By central differences: the body's loss as a function of theta, lr = 0.4."""

    def stepped(at: float) -> Tensor:  # phi after a step on softplus(-phi at)
        return 0.5 + 0.4 * at * torch.sigmoid(tensor(-0.5 * at, dtype=torch.float64))

    def outer(at: float) -> Tensor:
        phi = stepped(at) if unrolled else stepped(theta)
        return nn.functional.softplus(2 * phi * at)

    return ((outer(theta + 1e-5) - outer(theta - 1e-5)) / 2e-5).item()


@pytest.mark.parametrize("unrolled", [False, True])
def test_gradient_of_the_body_against_differences(unrolled: bool) -> None:
    method = FPSL(unrolled=unrolled, head_lr=0.4)
    local, batch = one_weight_client(method)
    found = gradients(method, local, batch)
    assert found["backbone.theta"].item() == pytest.approx(outer_slope(0.7, unrolled), abs=1e-7)
    # The head's: -theta sigmoid(-phi theta) = -0.7 * sigmoid(-0.35)
    assert found["head.weight"].item() == pytest.approx(-0.7 * 0.4133824, abs=1e-6)


def test_the_two_orders_differ() -> None:
    assert outer_slope(0.7, unrolled=True) != pytest.approx(outer_slope(0.7, False), abs=1e-3)


@pytest.mark.parametrize("unrolled", [False, True])
def test_in_half_precision_the_body_still_learns(unrolled: bool) -> None:
    """Casts that a pass without gradients leaves behind must not serve the next one."""
    method = by_sgd(unrolled=unrolled)
    local, batches = opened(method, make_federation())
    exact = gradients(method, local, batches[0])
    with torch.autocast("cpu", torch.bfloat16):
        rough = gradients(method, local, batches[0])
    for name, leaf in exact.items():
        assert (rough[name] - leaf).norm() <= 0.3 * leaf.norm() + 1e-6, name


def test_halves_are_disjoint_fixed_and_change_roles_each_round() -> None:
    method = make_method("fpsl")
    federation = make_federation()
    task, data = federation.task, federation.clients["site-0"]
    workspace = Workspace.of(task, CPU)
    received = method.broadcast(start_server(method, task, federation.engine()))
    kept: dict[str, object] = {}
    roles = []
    for round_index in range(3):
        local = open_round(method, task, workspace, data, received, kept, round_index)
        head, body = (pool.rows.tolist() for pool in method.pools(local))
        assert sorted(head + body) == list(range(len(data)))
        roles.append((head, body))
        _, kept = run_client(method, task, workspace, data, received, kept, round_index)
    assert roles[0] == roles[2] == roles[1][::-1]


def test_halves_are_of_the_split_seed_and_the_client() -> None:
    federation = make_federation(annotated=((0, 1, 2),) * 2)
    twins = {
        name: replace(federation.clients["site-0"], name=name) for name in federation.clients
    }  # the same images, so that only the names differ

    def head_half(split_seed: int, client: str) -> list[int]:
        method = make_method("fpsl", split_seed=split_seed)
        local, _ = opened(method, Federation(federation.task, twins), client)
        rows: list[int] = method.pools(local)[0].rows.tolist()
        return rows

    assert head_half(0, "site-0") == head_half(0, "site-0")
    assert head_half(0, "site-0") != head_half(1, "site-0")
    assert head_half(0, "site-0") != head_half(0, "site-1")


def test_without_decoupling_it_is_fedavg_pl_with_annotators_rows_bit_for_bit() -> None:
    federation = make_federation(annotated=((0, 1), (1,), (0, 2)))
    settings = {"positive_weight": "odds", "positive_weight_cap": 100.0}
    plain = make_method("fedavg-pl", head_rows="annotated", **settings)
    expected = federation.train(plain)
    assert same_bits(federation.train(make_method("fpsl", decoupling=False)), expected)
    assert not same_bits(federation.train(make_method("fpsl")), expected)


def test_with_complete_labels_rows_are_averaged_as_in_fedavg_bit_for_bit() -> None:
    federation = make_federation(annotated=((0, 1, 2),) * 2)
    mine, plain = (make_method("fpsl", head_rows=rule) for rule in ("annotated", "all"))
    assert same_bits(federation.train(mine), federation.train(plain))


@pytest.mark.parametrize("images", [2, 3])
def test_a_tiny_client_trains_jointly_bit_for_bit(images: int) -> None:
    federation = make_federation(annotated=((0, 1, 2),) * 2, images_each=images)
    joint = federation.train(make_method("fpsl", decoupling=False))
    assert same_bits(federation.train(make_method("fpsl")), joint)


def test_four_images_make_two_halves() -> None:
    local, _ = opened(make_method("fpsl"), make_federation(images_each=4))
    assert [len(pool.rows) for pool in make_method("fpsl").pools(local)] == [2, 2]
