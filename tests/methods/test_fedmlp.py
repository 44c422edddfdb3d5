"""FedMLP: the oracles and edge cases of its card, section (j)."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from tiny_federation import make_federation, make_method
from torch import Tensor, nn

from fedquilt.data.client_data import ClientData
from fedquilt.data.loading.batches import Batch
from fedquilt.losses.binary import elementwise_bce, masked_mean
from fedquilt.losses.prior import adjust_logits, clamp_prior
from fedquilt.losses.tagged import NO_TAG
from fedquilt.method import Local
from fedquilt.methods.fedmlp import FedMLP
from fedquilt.models.network import Layout, Output
from fedquilt.payload import Mean
from fedquilt.prototypes import (
    absence_score,
    class_prototypes,
    decided_share,
    tag_missing_labels,
)
from fedquilt.rounds import run_rounds, start_server
from fedquilt.totals import Accumulator
from fedquilt.tree import same_bits

SCORES = torch.tensor([0.30, 0.20, 0.10, 0.02, -0.01, -0.05, -0.20, -0.40])[:, None]


def _no_tags(count: int, classes: int = 1) -> Tensor:
    return torch.full((count, classes), NO_TAG, dtype=torch.int8)


# (j) 1 and 2: the prior in the logits


@pytest.mark.parametrize(("prior", "expected"), [(0.1, 0.2058823529), (0.5, 0.7), (1e-12, 0.0)])
def test_adjusted_probability(prior: float, expected: float) -> None:
    # 0.7 * 0.1 / (0.7 * 0.1 + 0.3 * 0.9) = 0.07 / 0.34
    logit = torch.tensor(math.log(0.7 / 0.3), dtype=torch.float64)
    adjusted = adjust_logits(logit, torch.tensor(prior, dtype=torch.float64))
    assert torch.sigmoid(adjusted).item() == pytest.approx(expected, abs=1e-9)


def test_weighted_partial_class_loss() -> None:
    # y = 0.7 with prior 0.1 is 0.20588: -ln 0.20588 = 1.58045; y = 0.4: -ln 0.6 = 0.51083.
    logits = torch.logit(torch.tensor([[0.7, 0.9, 0.4]])).requires_grad_()
    adjusted = adjust_logits(logits, torch.tensor([0.1, 0.3, 0.5]))
    losses = elementwise_bce(adjusted, torch.tensor([[1.0, 0.0, 0.0]]))
    assert losses[0, 0].item() == pytest.approx(1.58045, abs=1e-5)
    assert losses[0, 2].item() == pytest.approx(0.51083, abs=1e-5)
    loss = masked_mean(losses, torch.tensor([[True, False, True]]))
    assert loss.item() == pytest.approx(1.045638, abs=1e-6)
    loss.backward()
    assert logits.grad is not None
    assert logits.grad[0, 1].item() == 0.0


def test_a_prior_of_nothing_has_finite_log_odds() -> None:
    prior = clamp_prior(torch.tensor([0.0, 0.5, 1.0]), 8)
    assert prior.tolist() == pytest.approx([0.1, 0.5, 0.9])  # 1 / (8 + 2)


# (j) 3 to 6: which cells are tagged


def test_half_of_each_side_is_tagged_surest_first() -> None:
    half = torch.tensor([0.5])
    tags = tag_missing_labels(_no_tags(8), SCORES, torch.ones(8, 1, dtype=torch.bool), half, half)
    assert tags[:, 0].tolist() == [0, 0, -1, -1, -1, -1, 1, 1]


def test_a_score_of_zero_looks_absent() -> None:
    all_of_them = torch.ones(1)
    cells = torch.ones(3, 1, dtype=torch.bool)
    tags = tag_missing_labels(_no_tags(3), torch.zeros(3, 1), cells, all_of_them, all_of_them)
    assert tags.flatten().tolist() == [0, 0, 0]


def test_small_shares_of_few_cells_tag_nothing_by_floor_and_one_by_ceil() -> None:
    everywhere = torch.ones(8, 1, dtype=torch.bool)
    shares = torch.tensor([0.005]), torch.tensor([0.01])
    tags = tag_missing_labels(_no_tags(8), SCORES, everywhere, *shares)
    assert bool((tags == NO_TAG).all())
    tags = tag_missing_labels(_no_tags(8), SCORES, everywhere, *shares, "ceil")
    assert tags[:, 0].tolist() == [0, -1, -1, -1, -1, -1, -1, 1]


def test_tagging_dries_up_as_the_card_counts() -> None:
    # 4,500 look absent, 500 look present, fixed scores, shares 0.005 and 0.01 with d = 1.
    score = torch.cat([torch.linspace(1, 0.1, 4500), torch.linspace(-0.1, -1, 500)])[:, None]
    tags, productive = _no_tags(5000), 0
    everywhere = torch.ones(5000, 1, dtype=torch.bool)
    shares = torch.tensor([0.005], dtype=torch.float64), torch.tensor([0.01], dtype=torch.float64)
    for _ in range(450):
        present_before = int((tags == 1).sum())
        tags = tag_missing_labels(tags, score, everywhere, *shares)
        productive += int((tags == 1).sum()) > present_before
    assert int((tags[:4500] == NO_TAG).sum()) == 564
    assert int((tags[4500:] == NO_TAG).sum()) == 99
    assert productive == 208


def test_tags_are_for_ever_and_only_in_open_cells() -> None:
    generator = torch.Generator().manual_seed(0)
    open_cells = torch.rand(40, 3, generator=generator) < 0.6
    tags = _no_tags(40, 3)
    for _ in range(6):
        score = torch.rand(40, 3, generator=generator) - 0.5
        new = tag_missing_labels(tags, score, open_cells, *(torch.full((3,), 0.2),) * 2)
        was_tagged = tags != NO_TAG
        assert torch.equal(new[was_tagged], tags[was_tagged])
        assert bool((new[~open_cells] == NO_TAG).all())
        tags = new
    assert bool((tags != NO_TAG).any())


def test_the_released_code_drops_positives_of_a_round_without_negatives() -> None:
    arguments = (_no_tags(8), SCORES, torch.ones(8, 1, dtype=torch.bool))
    shares = torch.tensor([0.0]), torch.tensor([0.5])
    assert int((tag_missing_labels(*arguments, *shares) == 1).sum()) == 2
    paired = tag_missing_labels(*arguments, *shares, positives_need_negatives=True)
    assert bool((paired == NO_TAG).all())


def test_absence_score_knows_angles_only() -> None:
    features = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 3.0]])
    prototypes = torch.tensor([[[2.0, 0.0], [0.0, 5.0]]])  # absent points right, present up
    score = absence_score(features, prototypes)
    assert score[:, 0].tolist() == pytest.approx([1.0, 0.0, -1.0])
    torch.testing.assert_close(absence_score(features, 7 * prototypes), score)
    torch.testing.assert_close(absence_score(features, prototypes.flip(1)), -score)


# (j) 8 and 9: prototypes and learning degree


def test_prototypes_are_means_of_annotated_sides() -> None:
    features = torch.tensor([[2.0, 0.0], [4.0, 0.0], [0.0, 6.0], [100.0, 100.0]])
    labels = torch.tensor([[0], [0], [1], [1]], dtype=torch.uint8)
    known = torch.tensor([[True], [True], [True], [False]])
    prototypes, counts = class_prototypes(features, labels, known)
    assert prototypes[0].tolist() == [[3.0, 0.0], [0.0, 6.0]]
    assert counts[0].tolist() == [2, 1]


def _mean_of(values: list[tuple[float, float]]) -> float:
    """The global prototype from (value, count) pairs of clients."""
    like = {"prototypes": Mean(torch.zeros(1, 2, 1), torch.zeros(1, 2))}
    accumulator = Accumulator(like, len(values))
    for number, (value, count) in enumerate(values):
        part = Mean(torch.full((1, 2, 1), value), torch.full((1, 2), count))
        accumulator.add(str(number), {"prototypes": part})
    return accumulator.totals().mean("prototypes")[0, 0, 0].item()


def test_prototypes_are_weighted_by_their_counts() -> None:
    assert _mean_of([(1.0, 30.0), (4.0, 10.0)]) == pytest.approx(1.75)
    assert _mean_of([(2.5, 17.0)]) == 2.5  # one annotator: its prototype is the global one
    assert _mean_of([(1.0, 5.0), (4.0, 5.0)]) == pytest.approx(2.5)
    assert _mean_of([(1.0, 5.0), (999.0, 0.0)]) == 1.0  # a side without samples says nothing


@pytest.mark.parametrize(
    ("weights", "expected"), [("counts", [3, 0]), ("clients", [1, 0]), ("samples", [40, 0])]
)
def test_choices_of_prototype_weights(weights: str, expected: list[float]) -> None:
    method = FedMLP(prototype_weights=weights)
    found = method._prototype_weight(torch.tensor([[3, 0]]), 40)
    assert found[0].tolist() == expected


def test_learning_degree_counts_decided_cells() -> None:
    everywhere = torch.ones(4, 1, dtype=torch.bool)
    undecided, _ = decided_share(torch.zeros(4, 1), everywhere, 0.3, 0.7)
    decided, count = decided_share(
        torch.tensor([[-9.0], [9.0], [8.0], [-7.0]]), everywhere, 0.3, 0.7
    )
    assert (undecided.item(), decided.item(), count.item()) == (0.0, 1.0, 4)
    at_the_bounds, _ = decided_share(torch.zeros(4, 1), everywhere, 0.5, 0.5)
    assert at_the_bounds.item() == 0.0  # below or above, not at
    half = torch.tensor([[True], [True], [False], [False]])
    mixed, count = decided_share(torch.tensor([[9.0], [0.0], [9.0], [9.0]]), half, 0.3, 0.7)
    assert (mixed.item(), count.item()) == (0.5, 2)


# A round, hook by hook, on a network whose feature is the image and whose logits are given


class _Fixed(nn.Module):
    """Logits that do not depend on the image."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, images: Tensor) -> Output:
        return Output(images.flatten(1), self.logits.expand(len(images), -1))


def _local(method: FedMLP, *, round_index: int, known: Tensor, labels: Tensor) -> Local:
    count, classes = known.shape
    data = ClientData(
        "site",
        torch.zeros(count, 1, 1, 2, dtype=torch.uint8),
        torch.arange(count),
        labels.to(torch.uint8),
        known,
    )
    features = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.1, 0.9], [0.0, 1.0]])[:count]
    received = {
        "weights": {},
        "prototypes": torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]).repeat(classes, 1, 1),
        "usable": torch.ones(classes, dtype=torch.bool),
        "difficulty": torch.ones(classes),
    }
    teacher = torch.zeros(classes)
    return Local(
        round_index=round_index,
        stage=method.stages(round_index)[0].name,
        received=received,
        state=method.init_client(data),
        data=data,
        layout=Layout((), (), ()),
        model=_Fixed(torch.tensor([2.0] * classes)),  # type: ignore[arg-type]
        forward=lambda weights, images: Output(images, teacher.expand(len(images), -1)),
        predict=lambda weights, view: Output(features, torch.zeros(count, classes)),
        generator=torch.Generator(),
    )


KNOWN = torch.tensor([[True, False]] * 4)
LABELS = torch.tensor([[1, 0], [0, 0], [0, 0], [0, 0]])
GREEDY = FedMLP(warmup_rounds=1, negative_share=0.5, positive_share=0.5)


def test_stage_two_tags_the_missing_class_and_sets_its_prior() -> None:
    local = _local(GREEDY, round_index=1, known=KNOWN, labels=LABELS)
    state = GREEDY.begin(local)
    assert state["tags"].tolist() == [[-1, 0], [-1, -1], [-1, -1], [-1, 1]]
    assert state["prior"].tolist() == pytest.approx([0.25, 0.5])  # 1 of 4; 1 of 2 tagged
    by_client = replace(GREEDY, missing_prior="client").begin(local)
    assert by_client["prior"].tolist() == pytest.approx([0.25, 0.25])  # 1 of N_k = 4


@pytest.mark.parametrize("view", ["plain", "weak"])
def test_cells_are_tagged_by_features_of_the_received_model(view: str) -> None:
    method = replace(GREEDY, feature_view=view)
    local = _local(method, round_index=1, known=KNOWN, labels=LABELS)
    features = local.predict({}, "").features

    def predict(weights: object, asked: str) -> Output:
        assert weights is local.received["weights"]
        assert asked == view
        return Output(features, torch.zeros(4, 2))

    local.predict = predict
    assert method.begin(local)["tags"][:, 1].tolist() == [0, -1, -1, 1]


@pytest.mark.parametrize("spoiler", ["warm-up", "off", "unusable", "undecided"])
def test_when_nothing_may_be_tagged(spoiler: str) -> None:
    method = replace(GREEDY, detection=False) if spoiler == "off" else GREEDY
    round_index = 0 if spoiler == "warm-up" else 1
    local = _local(method, round_index=round_index, known=KNOWN, labels=LABELS)
    if spoiler == "unusable":
        local.received["usable"][1] = False
    if spoiler == "undecided":  # d_c = 0: every prediction is near 1/2
        local.received["difficulty"][1] = 0.0
    assert bool((method.begin(local)["tags"] == NO_TAG).all())


def test_every_cell_is_supervised_or_held_to_the_teacher() -> None:
    local = _local(GREEDY, round_index=1, known=KNOWN, labels=LABELS)
    local.state = GREEDY.begin(local)
    batch = Batch((torch.zeros(4, 1, 1, 2),), LABELS.float(), KNOWN, torch.arange(4))
    # Logits 2; class 0 with prior 1/4: z' = 2 - ln 3; class 1 with prior 1/2: z' = 2.
    # Supervised: class 0 with labels 1, 0, 0, 0; class 1 with tags 0 and 1 in rows 0 and 3.
    # Held: class 1, rows 1 and 2, (sigmoid(2) - sigmoid(0))^2. Mean over all 8 cells.
    adjusted = 2 - math.log(3)
    present, absent = math.log1p(math.exp(-adjusted)), math.log1p(math.exp(adjusted))
    tagged = math.log1p(math.exp(2.0)) + math.log1p(math.exp(-2.0))
    held = 2 * (1 / (1 + math.exp(-2.0)) - 0.5) ** 2
    expected = (present + 3 * absent + tagged + held) / 8
    assert GREEDY.loss(local, batch).item() == pytest.approx(expected, rel=1e-6)


def test_a_student_equal_to_its_teacher_feels_no_pull() -> None:
    method = replace(GREEDY, detection=False)
    known = torch.zeros(4, 2, dtype=torch.bool)
    local = _local(method, round_index=1, known=known, labels=LABELS)
    local.model = _Fixed(torch.zeros(2))  # type: ignore[assignment]
    local.state = method.begin(local)
    loss = method.loss(
        local, Batch((torch.zeros(4, 1, 1, 2),), LABELS.float(), known, torch.arange(4))
    )
    loss.backward()
    assert loss.item() == 0.0
    assert local.model.logits.grad.tolist() == [0.0, 0.0]


def test_the_ablation_on_fedavg_takes_untagged_blanks_for_zeros() -> None:
    method = replace(GREEDY, unannotated="negative", logit_adjustment=False, consistency=False)
    local = _local(method, round_index=1, known=KNOWN, labels=LABELS)
    local.state = method.begin(local)
    batch = Batch((torch.zeros(4, 1, 1, 2),), LABELS.float(), KNOWN, torch.arange(4))
    # All 8 cells are supervised; labels are 1 in (0, 0) and, by its tag, in (3, 1).
    present, absent = math.log1p(math.exp(-2.0)), math.log1p(math.exp(2.0))
    assert method.loss(local, batch).item() == pytest.approx((2 * present + 6 * absent) / 8)


def test_where_nothing_is_missing_both_stages_are_the_supervised_mean() -> None:
    """An empty mean over cells held to the teacher is 0, not NaN."""
    known = torch.ones(4, 2, dtype=torch.bool)
    labels = torch.tensor([[1, 0], [0, 1], [0, 0], [0, 0]])
    method = replace(GREEDY, warmup_consistency=True)
    # One positive of four in either class: z' = 2 - ln 3.
    adjusted = 2 - math.log(3)
    expected = (math.log1p(math.exp(-adjusted)) + 3 * math.log1p(math.exp(adjusted))) / 4
    for round_index in (0, 1):
        local = _local(method, round_index=round_index, known=known, labels=labels)
        local.state = method.begin(local)
        assert bool((local.state["tags"] == NO_TAG).all())
        batch = Batch((torch.zeros(4, 1, 1, 2),), labels.float(), known, torch.arange(4))
        assert method.loss(local, batch).item() == pytest.approx(expected, rel=1e-6)


def test_the_warm_up_averages_two_views_and_detection_has_one() -> None:
    method = FedMLP()
    assert [method.views(index) for index in (0, 49, 50)] == [("weak",) * 2] * 2 + [("weak",)]
    assert [method.stages(index)[0].name for index in (49, 50)] == ["warm-up", "detection"]
    local = _local(method, round_index=0, known=KNOWN, labels=LABELS)
    local.state = method.begin(local)
    view = torch.zeros(4, 1, 1, 2)
    one, two = (
        method.loss(local, Batch((view,) * count, LABELS.float(), KNOWN, torch.arange(4))).item()
        for count in (1, 2)
    )
    assert one == pytest.approx(two) != 0


def test_the_released_warm_up_also_holds_missing_classes_to_the_global_model() -> None:
    method = FedMLP(**FedMLP.variants["released"])
    local = _local(method, round_index=0, known=KNOWN, labels=LABELS)
    local.state = method.begin(local)
    batch = Batch((torch.zeros(4, 1, 1, 2),), LABELS.float(), KNOWN, torch.arange(4))
    # Logits 2, without a prior: one positive and three negatives; plus (sigmoid(2) - 1/2)^2.
    supervised = (math.log1p(math.exp(-2.0)) + 3 * math.log1p(math.exp(2.0))) / 4
    held = (1 / (1 + math.exp(-2.0)) - 0.5) ** 2
    assert method.loss(local, batch).item() == pytest.approx(supervised + held, rel=1e-6)


def test_cells_are_held_by_probabilities_without_the_prior() -> None:
    """A prior of 1/4 moves the logits that are supervised; only one cell of class 1 is."""
    method = replace(GREEDY, missing_prior="client", negative_share=0.0)
    local = _local(method, round_index=1, known=KNOWN, labels=LABELS)
    local.state = method.begin(local)
    assert local.state["prior"].tolist() == pytest.approx([0.25, 0.25])
    batch = Batch((torch.zeros(4, 1, 1, 2),), LABELS.float(), KNOWN, torch.arange(4))
    adjusted = 2 - math.log(3)
    present, absent = math.log1p(math.exp(-adjusted)), math.log1p(math.exp(adjusted))
    held = 3 * (1 / (1 + math.exp(-2.0)) - 0.5) ** 2
    expected = (present + 3 * absent + present + held) / 8
    assert method.loss(local, batch).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("difficulty_on", "degree", "cells"),
    [
        # Class 1 is missing: probabilities near 1, 1/2, near 0 and 1/2, so 2 of 4 are decided.
        ("missing", [0.0, 0.5], [0, 4]),
        ("active", [0.25, 0.0], [4, 0]),  # class 0: near 1, then 0.6, 0.65 and 1/2
    ],
)
def test_statistics_are_those_of_the_trained_model_from_the_last_warm_up_round_on(
    difficulty_on: str, degree: list[float], cells: list[int]
) -> None:
    method = FedMLP(warmup_rounds=2, difficulty_on=difficulty_on)
    trained: dict[str, Tensor] = {}
    features = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.1, 0.9], [0.0, 1.0]])
    logits = torch.tensor([[9.0, 9.0], [0.4, 0.0], [0.6, -9.0], [0.0, 0.0]])

    def predict(weights: object, view: str) -> Output:
        assert weights is trained
        assert view == "plain"
        return Output(features, logits)

    sent = []
    for round_index in range(3):
        local = _local(method, round_index=round_index, known=KNOWN, labels=LABELS)
        local.predict = predict
        sent.append(method.finish(local, trained, 1)[0])
    assert not sent[0]["prototypes"].weight.any()
    assert not sent[0]["difficulty"].weight.any()
    for update in sent[1:]:
        # Absent: images 1 to 3; present: image 0. Nothing is said of class 1.
        assert update["prototypes"].value[0, 0].tolist() == pytest.approx([1 / 3, 2 / 3])
        assert update["prototypes"].value[0, 1].tolist() == [1.0, 0.0]
        assert update["prototypes"].weight.tolist() == [[3, 1], [0, 0]]
        assert update["difficulty"].value.tolist() == pytest.approx(degree)
        assert update["difficulty"].weight.tolist() == cells


def test_numbers_of_the_card() -> None:
    method = FedMLP()
    assert (method.warmup_rounds, method.warmup_views) == (50, 2)
    assert (method.negative_share, method.positive_share) == (0.005, 0.01)
    assert (method.low, method.high, method.rounding) == (0.3, 0.7, "floor")
    assert (method.feature_view, method.difficulty_on) == ("plain", "missing")


# The server


def test_a_class_that_nobody_reports_keeps_its_prototypes_which_grow_older() -> None:
    method = make_method("fedmlp")
    federation = make_federation(rounds=4)
    engine, server = federation.engine(), federation.train(method)
    assert not server["prototype_age"].any()
    totals = engine.exchange(method, method.broadcast(server), 3, ["site-0"])  # has class 0 only
    new = method.update(server, totals)
    assert new["prototype_age"].tolist() == [[0, 0], [1, 1], [1, 1]]
    assert torch.equal(new["prototypes"][1:], server["prototypes"][1:])
    assert not torch.equal(new["prototypes"][0], server["prototypes"][0])


def test_prototypes_grow_old_and_are_then_not_used() -> None:
    """Partial participation: the last report of a class serves for a while."""
    federation = make_federation(rounds=6)
    method = make_method("fedmlp", prototype_age_limit=1)
    server = federation.train(method)
    assert bool(method.broadcast(server)["usable"].all())
    stale = {**server, "prototype_age": server["prototype_age"] + 2}
    assert not bool(method.broadcast(stale)["usable"].any())
    pointless = {**server, "prototypes": torch.zeros_like(server["prototypes"])}
    assert not bool(method.broadcast(pointless)["usable"].any())


def test_before_any_report_nothing_is_usable_and_every_degree_is_one() -> None:
    federation = make_federation()
    method = make_method("fedmlp", warmup_rounds=3)
    server = method.init_server(
        {name: torch.zeros(1) for name in federation.task.layout.names},
        federation.task,
        federation.engine().survey(method),
    )
    payload = method.broadcast(server)
    assert not bool(payload["usable"].any())
    assert payload["difficulty"].tolist() == [1.0, 1.0, 1.0]


def test_pseudo_labels_appear_only_where_nothing_was_annotated() -> None:
    federation = make_federation(rounds=4, images_each=40)
    engine = federation.engine()
    method = make_method("fedmlp", rounding="ceil", adaptive_threshold=False)
    server = start_server(method, federation.task, engine)
    for _ in run_rounds(method, federation.task, engine, server):
        pass
    for name, data in federation.clients.items():
        tags = method.pseudo_labels(engine._states.get(name)["method"])
        assert tags is not None
        assert bool((tags[data.known] == NO_TAG).all())
        assert bool((tags[~data.known] != NO_TAG).any())


@pytest.mark.parametrize(
    "switch",
    ["detection", "logit_adjustment", "consistency", "adaptive_threshold"],
)
def test_every_switch_of_the_ablation_matters(switch: str) -> None:
    federation = make_federation(rounds=3)
    easy = {"rounding": "ceil", "low": 0.48, "high": 0.52}  # so that few rounds decide something
    whole = federation.train(make_method("fedmlp", **easy))
    without = federation.train(make_method("fedmlp", **easy, **{switch: False}))
    assert not same_bits(whole["weights"], without["weights"])


def test_the_released_variant_is_the_authors_code() -> None:
    released = FedMLP(**FedMLP.variants["released"])
    assert not released.logit_adjustment
    assert not released.adaptive_threshold
    assert not released.consistency
    assert released.warmup_consistency
    assert released.positives_need_negatives
    assert (released.prototype_weights, released.missing_prior) == ("samples", "client")
    assert released.feature_view == "weak"
    federation = make_federation(rounds=3)
    trained = federation.train(make_method("fedmlp", **FedMLP.variants["released"]))
    assert not same_bits(trained["weights"], federation.train(make_method("fedmlp"))["weights"])
