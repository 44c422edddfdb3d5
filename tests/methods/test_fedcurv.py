"""FedCurv: the penalty on weights important to other clients, on the numbers of its card."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from support.scalar_client import OneWeight, local_of
from support.tiny_federation import make_federation, make_method
from torch import Tensor, nn, tensor

from fedquilt.core.errors import UserError
from fedquilt.core.tree import add, same_bits, tree_map
from fedquilt.data.batches import Batch
from fedquilt.engines.client_states import StatesInMemory
from fedquilt.methods.fedcurv import SUMS, FedCurv
from fedquilt.models.network import Output, read_weights
from fedquilt.training.averaging import WeightedAveraging
from fedquilt.training.client import Workspace, run_client
from fedquilt.training.method import Local
from fedquilt.training.rounds import run_rounds, start_server


def _scalar(value: float) -> dict[str, Tensor]:
    return {"w": tensor([value], dtype=torch.float64)}


def _client_zero(fisher: float, fisher_weights: float, at: float) -> Local:
    """One of several clients: it sent F = 2 at theta = 1; the sums are given."""
    received = {
        "weights": _scalar(1.0),
        "fisher": _scalar(fisher),
        "fisher_weights": _scalar(fisher_weights),
    }
    own = {"fisher": _scalar(2.0), "fisher_weights": _scalar(2.0)}
    return local_of(OneWeight(at), received, {"own": own})


def test_penalty_and_gradient_of_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    # F = [2, 0.5], theta = [1, 2]: U = 2.5, V = 2 * 1 + 0.5 * 2 = 3. Client 0 at 0.5 is left with
    # P = 0.5 and Q = 1. Direct: 0.1 * 0.5 * (0.5 - 2)^2 = 0.1125. Expanded, without the constant
    # 0.1 * 0.5 * 2^2 = 0.2: 0.1 * (0.25 * 0.5 - 2 * 0.5 * 1) = -0.0875.
    monkeypatch.setattr(WeightedAveraging, "loss", lambda self, local, batch: torch.zeros(()))
    method = FedCurv(strength=0.1)
    local = _client_zero(fisher=2.5, fisher_weights=3.0, at=0.5)
    local.state = method.begin(local)
    penalty = method.loss(local, None)  # type: ignore[arg-type]
    penalty.backward()
    assert penalty.item() == pytest.approx(0.1125)
    assert penalty.item() - 0.2 == pytest.approx(0.1 * (0.5**2 * 0.5 - 2 * 0.5 * 1.0))
    assert local.model.w.grad.item() == pytest.approx(-0.15)  # 2 * 0.1 * 0.5 * (0.5 - 2)


def test_two_clients_that_agree_have_no_gradient() -> None:
    local = _client_zero(fisher=4.0, fisher_weights=4.0, at=0.5)  # twice F = 2 at theta = 1
    state = FedCurv().begin(local)
    assert state["anchor"]["w"].item() == 1.0
    assert state["importance"]["w"].item() == 2.0


@pytest.mark.parametrize("noise", [0.0, 1e-13, -1e-13])
def test_rounding_errors_of_the_own_term_have_no_penalty(noise: float) -> None:
    local = _client_zero(fisher=2.0 + noise, fisher_weights=2.0 - noise, at=0.5)
    state = FedCurv().begin(local)
    assert state["importance"]["w"].item() == 0.0
    assert state["anchor"]["w"].item() == 0.0


class Slope(nn.Module):
    """The logit is the image times one weight, which is 0."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(1))

    def forward(self, images: Tensor) -> Output:
        assert not self.training
        return Output(images, images * self.w)


@pytest.mark.parametrize(("fisher_batch", "expected"), [(1, 0.625), (2, 0.0625)])
def test_fisher_by_hand(fisher_batch: int, expected: float) -> None:
    # Images 1 and 2 with labels 1 and 0, probabilities 0.5: gradients (0.5 - 1) * 1 = -0.5 and
    # 0.5 * 2 = 1. One by one (0.25 + 1) / 2; of both together ((-0.5 + 1) / 2)^2.
    images, labels = tensor([[1.0], [2.0]]), tensor([[1.0], [0.0]])
    zeros = {key: _scalar(0.0) for key in SUMS}
    received = {"weights": {"w": torch.zeros(1)}, **zeros}
    local = local_of(Slope(), received, {"positive_weight": torch.ones(1)})
    two_images = replace(local.data, indices=torch.arange(2))
    local = replace(local, data=two_images)
    method = FedCurv(fisher_batch=fisher_batch)
    local.state = method.begin(local)
    for rows in torch.arange(2).split(fisher_batch):
        batch = Batch((images[rows],), labels[rows], torch.ones(len(rows), 1) > 0, rows)
        local.state = method.observe(local, batch)
    update, kept = method.finish(local, {"w": tensor([3.0])}, 1)
    assert update["fisher"].value["w"].item() == pytest.approx(expected)
    assert update["fisher_weights"].value["w"].item() == pytest.approx(3 * expected)
    assert kept.keys() == {"positive_weight", "own"}  # scratch of the round is not kept
    assert local.model.training


def test_without_strength_it_is_fedavg_pl_bit_for_bit() -> None:
    federation = make_federation()
    plain = federation.train(make_method("fedavg-pl"))["weights"]
    assert same_bits(federation.train(make_method("fedcurv", strength=0.0))["weights"], plain)
    assert not same_bits(federation.train(make_method("fedcurv"))["weights"], plain)


@pytest.mark.parametrize(
    "federation", [make_federation(annotated=((0, 1, 2),)), make_federation(rounds=1)]
)
def test_alone_or_in_the_first_round_it_is_fedavg_pl_bit_for_bit(federation) -> None:  # type: ignore[no-untyped-def]
    plain = federation.train(make_method("fedavg-pl"))["weights"]
    assert same_bits(federation.train(make_method("fedcurv", strength=9.0))["weights"], plain)


def test_the_sums_hold_every_clients_last_term_when_few_take_part() -> None:
    method, states = make_method("fedcurv"), StatesInMemory()
    federation = make_federation(rounds=5)
    engine = federation.engine(states)
    server = start_server(method, federation.task, engine)
    resting = 0
    for round_ in run_rounds(method, federation.task, engine, server, cohort_size=2):
        kept = [states.get(name) for name in federation.clients]
        reported = [state["method"]["own"] for state in kept if state]
        resting += len(reported) > 2
        expected = tree_map(torch.zeros_like, reported[0])
        for own in reported:
            expected = add(expected, own)
        for key in SUMS:
            for name, total in round_.server[key].items():
                torch.testing.assert_close(total, expected[key][name], rtol=1e-9, atol=1e-12)
    assert resting > 0  # a client that was not drawn stayed in the sums


def test_a_client_constrains_no_rows_of_classes_it_does_not_annotate() -> None:
    federation = make_federation(annotated=((0, 2), (1,)), rounds=1)
    update, _ = _run(federation, "site-0")
    rows = update["fisher"].value["head.weight"].sum(1)
    assert (rows > 0).tolist() == [True, False, True]


def test_the_fisher_leaves_batch_norm_as_training_left_it() -> None:
    federation = make_federation(backbone="small-resnet")
    update, after = _run(federation, "site-0")
    before = read_weights(federation.task.build_network())
    buffers = update["buffers"].value
    for name, change in buffers.items():
        torch.testing.assert_close(after[name], before[name] + change)
    assert set(update["fisher"].value) == set(before) - set(buffers)


def _run(federation, client: str):  # type: ignore[no-untyped-def]
    """What a client sends in round 0, and what the scratch network holds afterwards."""
    method, task = make_method("fedcurv"), federation.task
    workspace = Workspace.of(task, torch.device("cpu"))
    server = start_server(method, task, federation.engine())
    received, data = method.broadcast(server), federation.clients[client]
    update, _ = run_client(method, task, workspace, data, received, {}, 0)
    assert workspace.training.training
    return update, read_weights(workspace.training)


@pytest.mark.parametrize("settings", [{"strength": -1.0}, {"fisher_batch": 0}])
def test_invalid_settings_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(UserError, match="0 or more and"):
        FedCurv(**settings)  # type: ignore[arg-type]
