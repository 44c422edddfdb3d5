"""QUILT: its loss, step and guard, on numbers worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from support.logit_client import batch_of, client_of, holding
from support.tiny_federation import make_federation, make_method
from torch import tensor

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Mean
from fedquilt.core.totals import Accumulator
from fedquilt.core.tree import same_bits
from fedquilt.methods.quilt import Quilt, agreement
from fedquilt.models.network import read_weights
from fedquilt.training.rounds import start_server

LABELS = tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
KNOWN = tensor([[True, False, True], [True, False, True]])
ROWS = frozenset({"head"})
ONE_OF_THREE = ((0,), (1,), (2,))


def _loss(method: Quilt, logits: torch.Tensor, teacher: torch.Tensor, **state: torch.Tensor):
    local = client_of(method, holding(LABELS, KNOWN), logits, teacher=teacher, **state)
    return method.loss(local, batch_of(LABELS, KNOWN))


def test_the_loss_by_hand() -> None:
    # The prior is 1/2 in both annotated classes, so nothing is shifted. Annotated, logits 0: four
    # times ln 2 = 2.7725887. Held to sigmoid(0.7) = 0.6681878: two times 0.1681878^2 = 0.0565743.
    found = _loss(Quilt(), torch.zeros(2, 3), torch.full((2, 3), 0.7))
    assert found.item() == pytest.approx((2.7725887 + 0.0565743) / 6, abs=1e-6)


def test_both_views_are_trained_and_held_to_the_weak_one_by_hand() -> None:
    # The strong view, logits 0, costs what the first test says. The weak view's logits are those of
    # the received model, 0.7, so its blanks cost nothing; two positives cost ln(1 + e^-0.7) =
    # 0.4031860 each, two negatives 1.1031860. The received model sees the weak view, number 1.
    weak_logits = torch.full((2, 3), 0.7)
    data = holding(LABELS, KNOWN)
    local = client_of(Quilt(), data, torch.zeros(2, 3), weak_logits, teacher=weak_logits)
    given, seen = local.forward, []

    def forward(weights, images):
        seen.append(images.unique().tolist())
        return given(weights, images)

    local.forward = forward
    both = Quilt(both_views=True)
    found = both.loss(local, batch_of(LABELS, KNOWN, views=2))
    strong, weak = 2.7725887 + 0.0565743, 2 * 0.4031860 + 2 * 1.1031860
    assert found.item() == pytest.approx((strong + weak) / 12, abs=1e-6)
    assert seen == [[1.0]]
    assert both.views(0) == ("strong", "weak")
    assert Quilt().views(0) == ("weak",)


def test_the_prior_shifts_annotated_logits_only() -> None:
    # pi = 0.1: z = 0 becomes -ln 9; positives cost ln 10 = 2.3025851, negatives ln(10 / 9) =
    # 0.1053605.
    prior = torch.full((3,), 0.1)
    found = _loss(Quilt(), torch.zeros(2, 3), torch.zeros(2, 3), prior=prior)
    assert found.item() == pytest.approx((2 * 2.3025851 + 2 * 0.1053605) / 6, abs=1e-6)


def test_a_positive_weight_counts_on_annotated_entries() -> None:
    # One positive in two labels, weight 2: 2 ln 2 for each of two positives, ln 2 for negatives.
    method = Quilt(positive_weight="inverse-prevalence")
    found = _loss(method, torch.zeros(2, 3), torch.zeros(2, 3))
    assert found.item() == pytest.approx((2 * 2 + 2) * math.log(2) / 6, abs=1e-6)


def test_without_consistency_blanks_add_nothing() -> None:
    method = Quilt(consistency=False)
    near = _loss(method, torch.zeros(2, 3), torch.zeros(2, 3))
    far = _loss(method, torch.zeros(2, 3), torch.full((2, 3), 9.0))
    assert near.item() == far.item() == pytest.approx(4 * math.log(2) / 6, abs=1e-6)


def test_a_student_equal_to_the_received_model_is_not_pulled() -> None:
    logits = tensor([[0.3, -1.0, 2.0], [-0.5, 0.7, 0.0]]).requires_grad_()
    local = client_of(Quilt(), holding(LABELS, torch.zeros_like(KNOWN)), logits, teacher=logits)
    loss = Quilt().loss(local, batch_of(LABELS, torch.zeros_like(KNOWN)))
    loss.backward()
    gradients = [leaf.grad for leaf in local.model.parameters()]
    assert loss.item() == 0.0
    assert all(bool((leaf == 0).all()) for leaf in gradients)


def test_the_agreement_of_two_changes() -> None:
    # Body: (3, 4) and (4, -3) are orthogonal; row 0: (1, 1) and (1, 0), 1 / sqrt(2);
    # row 1: opposite; row 2: no change the second time.
    change = {"body": tensor([3.0, 4.0]), "head": tensor([[1.0, 1.0], [2.0, 0.0], [0.0, 0.0]])}
    last = {"body": tensor([4.0, -3.0]), "head": tensor([[1.0, 0.0], [-1.0, 0.0], [5.0, 5.0]])}
    found = agreement(change, last, ROWS, 3)
    assert found.tolist() == pytest.approx([0.0, 1 / math.sqrt(2), -1.0, 0.0], abs=1e-9)


def _after(
    method: Quilt,
    *changes: float | Callable[[torch.Tensor], torch.Tensor],
    annotated=ONE_OF_THREE,
    clients: int | None = None,
    weights=(1.0, 1.0, 1.0),
):
    """The server after rounds in which every client's change is this, times its weight.

    A change is a number for all weights, or a function of them.
    """
    federation = make_federation(annotated=annotated)
    task, server = federation.task, start_server(method, federation.task, federation.engine())
    for change in changes:
        received = method.broadcast(server)
        expected = method.expected_update(received, task)
        accumulator = Accumulator(expected, population=len(task.clients))
        for weight, name in zip(weights, list(task.clients)[:clients]):
            data = federation.clients[name]
            rows = data.known.any(0).to(torch.float64) * weight
            made = change if callable(change) else partial(torch.full_like, fill_value=change)
            update = {
                part: Mean(
                    {key: weight * made(server["weights"][key]) for key in each.value},
                    rows if part == "head" else weight,
                )
                for part, each in expected.items()
            }
            accumulator.add(name, update)
        server = method.update(server, accumulator.totals())
    return task, read_weights(task.build_network()), server


def _moved(task, before, server) -> tuple[float, list[float]]:
    body = (server["weights"][task.layout.body[0]] - before[task.layout.body[0]]).mean().item()
    head = server["weights"][task.layout.head[0]] - before[task.layout.head[0]]
    return body, head.mean(1).tolist()


def test_the_step_is_two_minus_the_share_of_annotators() -> None:
    # Class 0 has one annotator of three, class 1 two, class 2 three: rows take 5/3, 4/3 and 1
    # times their change, the body 2 - 2/3.
    body, rows = _moved(*_after(Quilt(), 0.3, annotated=((0, 1, 2), (1, 2), (2,))))
    assert body == pytest.approx(0.3 * 4 / 3, abs=1e-6)
    assert rows == pytest.approx([0.5, 0.4, 0.3], abs=1e-6)


def test_with_every_label_annotated_the_step_is_one() -> None:
    body, rows = _moved(*_after(Quilt(), 0.3, annotated=((0, 1, 2),) * 3))
    assert body == pytest.approx(0.3, abs=1e-6)
    assert rows == pytest.approx([0.3, 0.3, 0.3], abs=1e-6)


def test_the_guard_ends_the_extra_step_when_changes_point_back() -> None:
    # The second change is the first one reversed: cos = -1, the guard is 0 and the step 1.
    body, rows = _moved(*_after(Quilt(), 0.3, -0.3))
    assert body == pytest.approx(0.3 * 5 / 3 - 0.3, abs=1e-6)
    assert rows == pytest.approx([0.2] * 3, abs=1e-6)
    free, _ = _moved(*_after(Quilt(guard=False), 0.3, -0.3))
    assert free == pytest.approx(0.0, abs=1e-6)


def test_the_guard_falls_by_the_cosine_and_recovers_when_changes_agree() -> None:
    # Back: 1 - 1 = 0. The same way again: 0 + 1 = 1, so the third step is 5/3 times 0.3 again.
    task, before, server = _after(Quilt(), 0.3, -0.3, -0.3)
    assert server["trust"].tolist() == pytest.approx([1.0] * 4)
    body, _ = _moved(task, before, server)
    assert body == pytest.approx(0.5 - 0.3 - 0.5, abs=1e-6)


def test_a_class_without_an_annotator_in_the_cohort_keeps_row_and_guard() -> None:
    task, before, server = _after(Quilt(), 0.3, -0.3, clients=2)
    _, rows = _moved(task, before, server)
    assert rows[2] == 0.0
    assert server["trust"].tolist() == pytest.approx([0.0, 0.0, 0.0, 1.0], abs=1e-6)


def test_sites_of_unequal_size_count_by_it_and_the_step_by_their_number() -> None:
    # Weights 1, 1, 4 and changes 0.1, 0.1, 0.4: the body's mean is 0.3, its step 5/3. Class 0 is
    # annotated by the first and the last site: (0.1 + 4 * 0.4) / 5 = 0.34, its step 4/3; classes 1
    # and 2 by one site each: 0.1 and 0.4, their step 5/3; a is 4/9, so the body's step is 14/9.
    annotated = ((0,), (1,), (0, 2))
    body, rows = _moved(*_after(Quilt(), 0.1, annotated=annotated, weights=(1.0, 1.0, 4.0)))
    assert body == pytest.approx(0.3 * 14 / 9, abs=1e-6)
    assert rows == pytest.approx([0.34 * 4 / 3, 0.1 * 5 / 3, 0.4 * 5 / 3], abs=1e-6)


def test_where_a_fixed_step_diverges_the_guard_converges() -> None:
    # Plain averaging overshoots, by the factor 1 - 1.5 = -1/2 a round, and converges. 5/3 times the
    # step is 1 - 2.5 = -3/2 and diverges, unless the guard ends it after one round.
    overshoot = [lambda weights: -1.5 * weights] * 12
    sizes = {}
    for guard in (True, False):
        task, before, server = _after(Quilt(guard=guard), *overshoot)
        names = [n for n in task.layout.body + task.layout.head if before[n].any()]
        sizes[guard] = [
            (server["weights"][name].norm() / before[name].norm()).item() for name in names
        ]
    assert sizes[True] == pytest.approx([1.5 / 2**11] * len(names), rel=1e-3)
    assert sizes[False] == pytest.approx([1.5**12] * len(names), rel=1e-3)


def test_without_its_ingredients_it_is_the_mean_loss_of_fedavg_pl() -> None:
    # Adam does not see that the sum is divided by all entries; plain SGD does, by the factor 3.
    federation = make_federation()
    off = {"logit_adjustment": False, "consistency": False, "over_relaxation": 0.0}
    quilt = replace(make_method("quilt"), **off, head_rows="all", guard=False)
    sgd = replace(quilt.training, optimizer="sgd", lr=0.03)
    quilt = replace(quilt, training=sgd)
    plain = replace(make_method("fedavg-pl"), positive_weight="none")
    plain = replace(plain, training=replace(sgd, lr=0.01))
    one, other = federation.train(quilt)["weights"], federation.train(plain)["weights"]
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=1e-4, atol=1e-6)


def test_only_what_fedavg_sends_leaves_a_client() -> None:
    federation = make_federation()
    quilt, plain = make_method("quilt"), make_method("fedavg-pl")
    sent = [
        method.expected_update(
            method.broadcast(start_server(method, federation.task, federation.engine())),
            federation.task,
        )
        for method in (quilt, plain)
    ]
    assert sent[0].keys() == sent[1].keys()
    received = quilt.broadcast(start_server(quilt, federation.task, federation.engine()))
    assert received.keys() == {"weights"}


def test_training_moves_the_guard_and_changes_the_model() -> None:
    federation = make_federation(rounds=4)
    guarded, free = (federation.train(make_method("quilt", guard=on)) for on in (True, False))
    assert free["trust"].tolist() == [1.0] * 4
    assert bool((guarded["trust"] <= 1).all())
    plain = federation.train(make_method("quilt", over_relaxation=0.0))
    assert not same_bits(plain["weights"], free["weights"])


def test_a_step_of_two_or_more_is_refused() -> None:
    with pytest.raises(UserError, match=r"over_relaxation must be a share in 0..1, found 1.5"):
        Quilt(over_relaxation=1.5)
