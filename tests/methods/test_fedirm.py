"""FedIRM: relation matrices, their divergence and the teacher, on the numbers of its card."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from support.pixel_logits import make_batch, make_local, plain_federation, with_teacher
from support.tiny_federation import make_federation, make_method
from torch import Tensor, tensor

from fedquilt.core.payload import Mean
from fedquilt.core.totals import Accumulator
from fedquilt.core.tree import same_bits
from fedquilt.losses.distillation import relation_gap, relation_logits
from fedquilt.losses.pseudo_labels import binary_entropy, confident_positives
from fedquilt.methods.fedirm import FedIRM
from fedquilt.models.teacher import training_mode_output
from fedquilt.training.client import Workspace, run_client
from fedquilt.training.rounds import start_server
from fedquilt.training.warm_up import gaussian_ramp

P = tensor([[0.9, 0.2], [0.5, 0.6]], dtype=torch.float64)
Q = tensor([[0.8, 0.3], [0.5, 0.4]], dtype=torch.float64)
BOTH = tensor([True, True])


@pytest.mark.parametrize(
    ("round_index", "start", "end", "expected"),
    [
        (0, 0, 30, 0.0067379),  # exp(-5)
        (20, 0, 30, 0.5737534),  # exp(-5 / 9)
        (30, 0, 30, 1.0),
        (99, 0, 30, 1.0),
        (3, 10, 499, 0.0067379),  # before the start
        (7, 7, 7, 1.0),
    ],
)
def test_gaussian_ramp(round_index: int, start: int, end: int, expected: float) -> None:
    assert gaussian_ramp(round_index, start, end) == pytest.approx(expected, abs=6e-8)


def test_divergence_of_the_card() -> None:
    one_sided = (P * (P / Q).log()).sum() / 2, (Q * (Q / P).log()).sum() / 2
    # The card gives the sums over C: 0.1340954 and -0.0673865, one of them below 0.
    assert [side.item() for side in one_sided] == pytest.approx([0.1340954, -0.0673865], abs=6e-8)
    found = relation_gap(torch.logit(P), Q, BOTH).item()
    assert found == pytest.approx(0.0333545, abs=6e-8)
    assert relation_gap(torch.logit(Q), P, BOTH).item() == pytest.approx(found)
    assert relation_gap(torch.logit(P), P, BOTH).item() == pytest.approx(0.0, abs=1e-15)


def test_a_row_nobody_reported_is_not_matched() -> None:
    found = relation_gap(torch.logit(P), Q, tensor([False, True])).item()
    assert found == pytest.approx(0.2 * math.log(1.5) / 4)  # (0.6 - 0.4) ln(0.6 / 0.4) / (2 * 2)


def test_saturated_logits_have_a_finite_divergence_and_gradient() -> None:
    logits = tensor([[-500.0, 500.0], [0.0, 0.0]], requires_grad=True)
    gap = relation_gap(logits, tensor([[1.0, 0.0], [0.5, 0.5]]), BOTH)
    gap.backward()
    assert math.isfinite(gap.item())
    assert gap.item() > 100
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())


def test_row_of_the_card() -> None:
    logits = tensor([[1.0, -2.0], [3.0, 0.0], [-1.0, 4.0]])
    members = tensor([[True, False], [True, False], [False, False]])
    # Mean (2, -1), divided by 2: sigmoid(1), sigmoid(-1/2); a class without members has 1/2.
    rows = torch.sigmoid(relation_logits(logits, members, 2.0))
    assert rows[0].tolist() == pytest.approx([0.7310586, 0.3775407], abs=6e-8)
    assert rows[1].tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("probability", "classes", "expected"), [(0.3, 4, 2.4435), (0.05, 8, 1.5881)]
)
def test_entropy_of_the_card(probability: float, classes: int, expected: float) -> None:
    logits = torch.logit(torch.full((1, classes), probability))
    assert binary_entropy(logits).sum().item() == pytest.approx(expected, abs=6e-5)
    assert binary_entropy(tensor([400.0, -400.0])).tolist() == [0.0, 0.0]


def test_an_image_is_confident_by_entropy_and_by_every_class() -> None:
    # 0.75 four times: entropy 4 * 0.5623 = 2.249, too much. 0.95 and 0.6: 0.6 is not confident.
    calm, torn = [0.95, 0.05, 0.95, 0.05], [0.75] * 4
    logits = torch.logit(tensor([calm, torn, [0.95, 0.6, 0.95, 0.05]]))
    found = confident_positives(logits, FedIRM().entropy_limit, FedIRM().confidence)
    assert found.tolist() == [[True, False, True, False], [False] * 4, [False] * 4]
    lenient = confident_positives(logits, 2.3, FedIRM().confidence)
    assert lenient[1].tolist() == [True] * 4


def _loss(round_index: int, first: Tensor) -> float:
    """Of one image with class 0 annotated as present, and a teacher at 1/2 everywhere."""
    method = FedIRM(warmup_rounds=1)
    relation = tensor([[0.5, 0.5], [0.5, 0.9]])
    local = make_local(
        method,
        tensor([[True, False]]),
        tensor([[1, 0]]),
        round_index=round_index,
        relation=relation,
        reported=BOTH,
    )
    local.state = with_teacher(local, shift=0.0)
    local.state = method.begin(local)
    return method.loss(local, make_batch(local, first, torch.zeros(1, 2))).item()


def test_loss_by_hand() -> None:
    logit = math.log(3)  # a probability of 3/4
    first = tensor([[0.0, logit]])
    assert _loss(0, first) == pytest.approx(2 * math.log(2))  # both views, warm-up
    # Stage 2, past the ramp. Consistency over all classes: 0 + (3/4 - 1/2)^2. Class 0 is at 1/2,
    # so the image is not confident and the source is 1/2: only (1/2 - 0.9) ln(0.5 / 0.9)
    # over 2 * 2 remains.
    relation = (0.5 - 0.9) * math.log(0.5 / 0.9) / 4
    expected = 2 * math.log(2) + 1 / 16 + relation
    assert _loss(40, first) == pytest.approx(expected, rel=1e-6)


def test_relation_matching_pulls_confident_predictions() -> None:
    # Logits (2 ln 3, 2 ln 9) = probabilities 0.9 and 0.988, confident. Both source rows are
    # sigmoid(ln 3, ln 9) = (3/4, 9/10); the target is 1/2 but for 9/10 at (1, 1).
    first = tensor([[2 * math.log(3), 2 * math.log(9)]])
    consistency = (0.9 - 0.5) ** 2 + (81 / 82 - 0.5) ** 2
    relation = (2 * 0.25 * math.log(1.5) + 0.4 * math.log(1.8)) / 4
    supervised = math.log(10 / 9) + math.log(2)
    assert _loss(40, first) == pytest.approx(supervised + consistency + relation, rel=1e-6)


def test_without_strength_it_is_fedavg_pl_at_twice_the_rate_bit_for_bit() -> None:
    """Two views summed are two gradients, and a factor of two is exact."""
    federation = plain_federation()

    def trained(name: str, lr: float, **settings: object) -> object:
        method = make_method(name, **settings)
        training = replace(method.training, optimizer="sgd", lr=lr)
        return federation.train(replace(method, training=training))["weights"]

    partial = trained("fedavg-pl", 0.02)
    assert same_bits(trained("fedirm", 0.01, strength=0.0), partial)
    assert not same_bits(trained("fedirm", 0.01), partial)


def _report(server: dict, *reports: tuple[float, float]) -> dict:
    """The server after clients sent a matrix of one value, weighted in its first row only."""
    method = FedIRM()
    zeros = torch.zeros(2, 2)
    expected = {"body": Mean({"w": zeros}, 1.0), "relation": Mean(zeros, torch.zeros(2))}
    accumulator = Accumulator(expected, len(reports))
    for number, (value, weight) in enumerate(reports):
        sent = Mean(torch.full((2, 2), value), tensor([weight, 0.0]))
        accumulator.add(str(number), {"body": Mean({"w": zeros}, 1.0), "relation": sent})
    return method.update(server, accumulator.totals())


def test_server_replaces_reported_rows_and_keeps_the_others() -> None:
    server = {
        "weights": {"w": torch.zeros(2, 2)},
        "relation": torch.full((2, 2), 0.5),
        "reported": tensor([False, False]),
    }
    server = _report(server, (0.2, 100.0), (0.6, 300.0))
    assert server["relation"].tolist()[0] == pytest.approx([0.5, 0.5])  # (20 + 180) / 400
    assert server["relation"].tolist()[1] == [0.5, 0.5]
    assert server["reported"].tolist() == [True, False]
    server = _report(server, (0.9, 10.0))
    assert server["relation"].tolist()[0] == pytest.approx([0.9, 0.9])
    server = _report(server, (0.1, 0.0))
    assert server["relation"].tolist()[0] == pytest.approx([0.9, 0.9])
    assert server["reported"].tolist() == [True, False]


def test_a_client_reports_rows_it_has_positives_of_from_the_last_warm_up_round() -> None:
    method = make_method("fedirm", warmup_rounds=2)
    federation = make_federation(annotated=((0, 1), (2,)))
    workspace = Workspace.of(federation.task, torch.device("cpu"))
    received = method.broadcast(start_server(method, federation.task, federation.engine()))
    data = federation.clients["site-0"]
    no_positive = replace(data, labels=data.labels * tensor([1, 0, 1], dtype=torch.uint8))
    for round_index, expected in ((0, [0, 0, 0]), (1, [21, 0, 0]), (2, [21, 0, 0])):
        update, kept = run_client(
            method, federation.task, workspace, no_positive, received, {}, round_index
        )
        assert update["relation"].weight.tolist() == expected  # type: ignore[union-attr]
        assert ("teacher" in kept["method"]) == (round_index == 2)


def test_a_new_teacher_adapts_fast() -> None:
    method = FedIRM(warmup_rounds=0, teacher_decay=0.6)
    local = make_local(method, tensor([[True]]), tensor([[1]]))
    local.state = method.begin(local)
    found = []
    for value in (8.0, 4.0, 0.0, 0.0):
        with torch.no_grad():
            local.model.shift.fill_(value)  # type: ignore[operator, union-attr]
        local.state = method.after_step(local, {})
        found.append(local.state["teacher"]["shift"].item())
    # Decays min(1 - 1 / (step + 1), 0.6): 0, 1/2, 0.6 instead of 2/3, 0.6.
    assert found == pytest.approx([8.0, 6.0, 3.6, 2.16])
    assert local.state["teacher_steps"].item() == 4


RELEASED = FedIRM.variants["released"]


def test_the_released_matrix_is_a_mean_over_batches() -> None:
    """Two batches of one image; class 0 is present in the first, class 1 is annotated as absent."""
    method = FedIRM(warmup_rounds=1, **RELEASED)
    method = replace(method, training=replace(method.training, batch_size=1))
    known, labels = tensor([[True, True, False]] * 2), tensor([[1, 0, 0], [0, 0, 0]])
    zeros = torch.zeros(3, 3)
    local = make_local(
        *(method, known, labels), relation=zeros, reported=torch.zeros(3, dtype=torch.bool)
    )
    logits = 2 * math.log(3)  # divided by 2 a probability of 3/4
    update, _ = method.finish(local, {"shift": tensor([logits])}, 1)
    sent = update["relation"]
    assert isinstance(sent, Mean)
    # Row 0: (3/4 + 1/2) / 2; rows of classes without a positive: 1/2.
    assert sent.value[0].tolist() == pytest.approx([0.625] * 3)  # type: ignore[index, union-attr]
    assert sent.value[1:].tolist() == [[0.5] * 3] * 2  # type: ignore[index, union-attr]
    assert sent.weight.tolist() == [2.0, 2.0, 0.0]  # type: ignore[union-attr]
    corrected, _ = replace(method, matrix="positives").finish(local, {"shift": tensor([logits])}, 1)
    assert corrected["relation"].value[0].tolist() == pytest.approx([0.75] * 3)
    assert corrected["relation"].weight.tolist() == [2.0, 0.0, 0.0]  # type: ignore[union-attr]


def test_a_teacher_in_training_mode_uses_the_batch_and_leaves_every_statistic() -> None:
    # Batch 0 and 2: mean 1, deviation 1, so -1 and 1; by the teacher's own mean 5 and deviation 1
    # they would be -5 and -3. Its weight is 3, the network's is 1.
    network = torch.nn.BatchNorm1d(1, eps=1e-12).train()
    teacher = {
        "weight": tensor([3.0]),
        "bias": tensor([0.0]),
        "running_mean": tensor([5.0]),
        "running_var": tensor([1.0]),
    }
    found = training_mode_output(network, teacher, tensor([[0.0], [2.0]]))
    assert found.flatten().tolist() == pytest.approx([-3.0, 3.0])  # type: ignore[attr-defined]
    assert not found.requires_grad  # type: ignore[attr-defined]
    assert teacher["running_mean"].item() == 5.0
    assert network.running_mean.tolist() == [0.0]  # type: ignore[operator, union-attr]


@pytest.mark.parametrize("setting", RELEASED)
def test_each_part_of_the_released_variant_matters(setting: str) -> None:
    federation = plain_federation(backbone="small-resnet", annotated=((0, 1), (1, 2), (0, 2)))
    default = federation.train(make_method("fedirm", ramp_rounds=1))["weights"]
    one = make_method("fedirm", ramp_rounds=1, **{setting: RELEASED[setting]})
    found = federation.train(one)["weights"]
    assert not same_bits(found, default)
    assert all(bool(leaf.isfinite().all()) for leaf in found.values())
