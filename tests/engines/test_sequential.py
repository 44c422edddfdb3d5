"""The sequential engine: errors name the client, rounds are reproducible, states are kept."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from support.failing_method import Failing
from support.tiny_federation import Federation, make_federation, make_method

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Mean, Update
from fedquilt.core.tree import Weights, same_bits
from fedquilt.core.update_checks import RefusedUpdate
from fedquilt.engines.client_states import StatesInMemory
from fedquilt.methods.fedavg import FedAvg
from fedquilt.training.method import Local, State
from fedquilt.training.rounds import start_server


@dataclass(frozen=True, kw_only=True)
class Poisonous(FedAvg):
    """Sends a NaN from one client."""

    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        update, state = super().finish(local, weights, steps)
        head = update["head"]
        assert isinstance(head, Mean)
        broken = {name: torch.full_like(value, torch.nan) for name, value in head.value.items()}
        return {**update, "head": Mean(broken, head.weight)}, state


def _payload(federation: Federation, method: FedAvg) -> State:
    return method.broadcast(start_server(method, federation.task, federation.engine()))


def test_a_failure_names_method_client_and_round() -> None:
    federation, method = make_federation(), Failing()
    payload = _payload(federation, method)
    with pytest.raises(RuntimeError, match="the disk is full") as failure:
        federation.engine().exchange(method, payload, 4, ["site-0", "site-1"])
    assert failure.value.__notes__ == ["while client 'site-1' ran Failing, round 4"]


def test_an_update_with_nan_is_refused_by_name() -> None:
    federation, method = make_federation(), Poisonous()
    payload = _payload(federation, method)
    with pytest.raises(RefusedUpdate, match=r"client 'site-2', part 'head'.*NaN"):
        federation.engine().exchange(method, payload, 0, ["site-2"])


def test_a_diverging_loss_says_what_to_change() -> None:
    federation = make_federation()
    method = make_method("fedavg")
    wild = replace(method, training=replace(method.training, optimizer="sgd", lr=1e30))
    with pytest.raises(UserError, match=r"training loss of client .* lower method.training.lr"):
        federation.train(wild)


def test_a_round_depends_on_the_cohort_and_not_on_its_order() -> None:
    federation, method = make_federation(), make_method("fedavg-pl")
    payload = _payload(federation, method)
    one = federation.engine().exchange(method, payload, 0, ["site-0", "site-2"])
    two = federation.engine().exchange(method, payload, 0, ["site-2", "site-0"])
    assert one.cohort == two.cohort == ("site-0", "site-2")
    assert one.population == 3
    assert same_bits(one.mean("body"), two.mean("body"))


def test_only_the_cohort_gets_a_new_state() -> None:
    federation, method = make_federation(), make_method("fedmlp")
    states = StatesInMemory()
    payload = _payload(federation, method)
    federation.engine(states).exchange(method, payload, 0, ["site-1"])
    assert states.get("site-1")
    assert not states.get("site-0")


def test_bytes_sent_are_those_of_the_parts() -> None:
    """small-cnn with 3 classes: float32 weights, float64 weights of means, one loss."""
    federation, method = make_federation(), make_method("fedavg")
    payload = _payload(federation, method)
    totals = federation.engine().exchange(method, payload, 0, ["site-0"])
    numbers = sum(weight.numel() for weight in payload["weights"].values())
    # body: 1 weight; head: 3, one per class; loss: 1 number and 1 weight
    assert totals.byte_count == 4 * numbers + 8 * (1 + 3) + 4 + 8


def test_global_draws_are_seeded_by_the_round() -> None:
    """Two runs of one round agree, whatever state torch's global generator is in."""
    federation, method = make_federation(), make_method("fedavg")
    payload = _payload(federation, method)
    torch.manual_seed(1)
    one = federation.engine().exchange(method, payload, 0, ["site-0"])
    state = torch.random.get_rng_state()
    torch.manual_seed(2)
    two = federation.engine().exchange(method, payload, 0, ["site-0"])
    assert same_bits(one.mean("head"), two.mean("head"))
    torch.manual_seed(1)
    assert torch.equal(torch.random.get_rng_state(), state)  # unchanged by the round
