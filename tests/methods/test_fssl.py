"""FSSL: consistency with the received model, and annotators' weight in head rows."""

from __future__ import annotations

import math

import pytest
import torch
from support.pixel_logits import make_batch, make_local, plain_federation
from support.tiny_federation import make_federation, make_method
from torch import tensor

from fedquilt.core.errors import UserError
from fedquilt.core.totals import Accumulator
from fedquilt.core.tree import same_bits
from fedquilt.losses.distillation import squared_gap
from fedquilt.methods.fssl import FSSL
from fedquilt.training.rounds import start_server

KNOWN = tensor([[True, False]] * 2)
LABELS = tensor([[1, 0], [1, 0]])


@pytest.mark.parametrize(("round_index", "ramp"), [(0, math.exp(-5)), (20, 0.5737534), (30, 1.0)])
def test_loss_by_hand(round_index: int, ramp: float) -> None:
    method = FSSL(strength=2.0)
    local = make_local(method, KNOWN, LABELS, round_index=round_index)
    student = tensor([[0.0, 0.0], [0.0, 0.0]])
    other_view = tensor([[9.0, math.log(3)], [9.0, 0.0]])
    # Annotated: logit 0, label 1, weight 2 / 2: ln 2. Missing: probabilities 1/2 against 3/4 and
    # against 1/2: ((1/4)^2 + 0) / 2 = 1/32; the teacher's 9 is at an annotated label.
    expected = math.log(2) + 2 * ramp / 32
    local.state = method.begin(local)
    found = method.loss(local, make_batch(local, student, other_view)).item()
    assert found == pytest.approx(expected, rel=1e-6)


def test_the_teacher_learns_nothing() -> None:
    student, teacher = (torch.zeros(1, requires_grad=True) for _ in range(2))
    squared_gap(student + 1, teacher).backward()
    assert teacher.grad is None
    # d/dz of (s(z) - 1/2)^2 at 1: 2 * 0.2310586 * 0.7310586 * 0.2689414
    assert student.grad is not None
    assert student.grad.item() == pytest.approx(0.0908577, abs=6e-7)


def test_without_consistency_it_is_fedavg_pl_with_annotators_rows_bit_for_bit() -> None:
    federation = plain_federation(annotated=((0, 1), (1,), (0, 2)))
    partial = federation.train(make_method("fedavg-pl", head_rows="annotated"))
    assert same_bits(federation.train(make_method("fssl", strength=0.0)), partial)
    assert not same_bits(federation.train(make_method("fssl")), partial)


def _head_bias(labelled_weight: float, changes: list[float]) -> list[float]:
    """The head's bias when site i moves all of it by changes[i]; site 0 annotates 0, 1; 1: 1."""
    method = make_method("fssl", labelled_weight=labelled_weight)
    federation = make_federation(annotated=((0, 1), (1,), (2,)))
    server = start_server(method, federation.task, federation.engine())
    received = method.broadcast(server)
    accumulator = Accumulator(method.expected_update(received, federation.task), 3)
    for (name, data), change in zip(federation.clients.items(), changes):
        local = make_local(method, data.known, data.labels)
        local.received, local.layout = received, federation.task.layout
        weights = {key: leaf + change for key, leaf in received["weights"].items()}
        accumulator.add(name, method.finish(local, weights, 1)[0])
    new = method.update(server, accumulator.totals())["weights"]
    gap = new["head.bias"] - received["weights"]["head.bias"]
    found: list[float] = gap.tolist()
    return found


def test_annotators_share_rho_and_the_others_the_rest() -> None:
    # Equal sites, rho = 0.7. Class 0: 0.7 * 3 + 0.3 * (6 + 12) / 2 = 4.8; class 1:
    # 0.7 * (3 + 6) / 2 + 0.3 * 12 = 6.75; class 2: 0.7 * 12 + 0.3 * (3 + 6) / 2 = 9.75.
    assert _head_bias(0.7, [3.0, 6.0, 12.0]) == pytest.approx([4.8, 6.75, 9.75], abs=1e-5)
    assert _head_bias(1.0, [3.0, 6.0, 12.0]) == pytest.approx([3.0, 4.5, 12.0], abs=1e-5)


@pytest.mark.parametrize("rho", [0.0, 0.2, 1.0])
def test_weights_sum_to_one(rho: float) -> None:
    """What all clients agree on is kept, whatever the weight."""
    assert _head_bias(rho, [5.0, 5.0, 5.0]) == pytest.approx([5.0, 5.0, 5.0], abs=1e-5)


def test_rho_acts_on_head_rows_only() -> None:
    federation = plain_federation(rounds=1)
    whole = federation.train(make_method("fssl"))["weights"]
    shared = federation.train(make_method("fssl", labelled_weight=0.5))["weights"]
    differing = {name for name in whole if not torch.equal(whole[name], shared[name])}
    assert differing == set(federation.task.layout.head)


def test_a_class_that_all_annotate_has_no_others() -> None:
    federation = plain_federation(annotated=((0, 1, 2),) * 2)
    shared = federation.train(make_method("fssl", labelled_weight=0.5))["weights"]
    whole = federation.train(make_method("fssl"))["weights"]
    for name, leaf in whole.items():
        torch.testing.assert_close(shared[name], leaf)


def test_an_impossible_weight_is_refused() -> None:
    with pytest.raises(UserError, match=r"labelled_weight must be in 0..1, found 1.5"):
        FSSL(labelled_weight=1.5)
