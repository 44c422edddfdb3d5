"""FedMLP's round, hook by hook: the feature is the image, the logits are given."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor, nn

from fedquilt.data.batches import Batch
from fedquilt.data.client_data import ClientData
from fedquilt.losses.pseudo_labels import NO_TAG
from fedquilt.methods.fedmlp import FedMLP, Released
from fedquilt.models.network import Layout, Output
from fedquilt.training.method import Local


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


def _released(method: FedMLP) -> Released:
    """The class that the authors' code has, with the settings of ``method``."""
    return Released(**{field.name: getattr(method, field.name) for field in fields(method)})


@pytest.mark.parametrize(("method", "view"), [(GREEDY, "plain"), (_released(GREEDY), "weak")])
def test_entries_are_tagged_by_features_of_the_received_model(method: FedMLP, view: str) -> None:
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


def test_every_entry_is_supervised_or_held_to_the_teacher() -> None:
    local = _local(GREEDY, round_index=1, known=KNOWN, labels=LABELS)
    local.state = GREEDY.begin(local)
    batch = Batch((torch.zeros(4, 1, 1, 2),), LABELS.float(), KNOWN, torch.arange(4))
    # Logits 2; class 0 with prior 1/4: z' = 2 - ln 3; class 1 with prior 1/2: z' = 2.
    # Supervised: class 0 with labels 1, 0, 0, 0; class 1 with tags 0 and 1 in rows 0 and 3.
    # Held: class 1, rows 1 and 2, (sigmoid(2) - sigmoid(0))^2. Mean over all 8 entries.
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


def test_the_ablation_on_fedavg_treats_untagged_labels_as_negative() -> None:
    method = replace(GREEDY, unannotated="negative", logit_adjustment=False, consistency=False)
    local = _local(method, round_index=1, known=KNOWN, labels=LABELS)
    local.state = method.begin(local)
    batch = Batch((torch.zeros(4, 1, 1, 2),), LABELS.float(), KNOWN, torch.arange(4))
    # All 8 entries are supervised; labels are 1 in (0, 0) and, by its tag, in (3, 1).
    present, absent = math.log1p(math.exp(-2.0)), math.log1p(math.exp(2.0))
    assert method.loss(local, batch).item() == pytest.approx((2 * present + 6 * absent) / 8)


def test_where_nothing_is_missing_both_stages_are_the_supervised_mean() -> None:
    """An empty mean over entries held to the teacher is 0, not NaN."""
    known = torch.ones(4, 2, dtype=torch.bool)
    labels = torch.tensor([[1, 0], [0, 1], [0, 0], [0, 0]])
    method = _released(GREEDY)
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
    method = Released(logit_adjustment=False)
    local = _local(method, round_index=0, known=KNOWN, labels=LABELS)
    local.state = method.begin(local)
    batch = Batch((torch.zeros(4, 1, 1, 2),), LABELS.float(), KNOWN, torch.arange(4))
    # Logits 2, without a prior: one positive and three negatives; plus (sigmoid(2) - 1/2)^2.
    supervised = (math.log1p(math.exp(-2.0)) + 3 * math.log1p(math.exp(2.0))) / 4
    held = (1 / (1 + math.exp(-2.0)) - 0.5) ** 2
    assert method.loss(local, batch).item() == pytest.approx(supervised + held, rel=1e-6)


def test_entries_are_held_by_probabilities_without_the_prior() -> None:
    """The prior moves the logits that are supervised; of class 1 only one entry is."""
    method = replace(GREEDY, negative_share=0.0)
    local = _local(method, round_index=1, known=KNOWN, labels=LABELS)
    local.state = method.begin(local)
    # Class 1: one of one tagged, kept off 1 by 1 / (4 + 2).
    assert local.state["prior"].tolist() == pytest.approx([0.25, 5 / 6])
    batch = Batch((torch.zeros(4, 1, 1, 2),), LABELS.float(), KNOWN, torch.arange(4))
    adjusted = 2 - math.log(3)
    present, absent = math.log1p(math.exp(-adjusted)), math.log1p(math.exp(adjusted))
    tagged = math.log1p(math.exp(-(2 + math.log(5))))
    held = 3 * (1 / (1 + math.exp(-2.0)) - 0.5) ** 2
    expected = (present + 3 * absent + tagged + held) / 8
    assert method.loss(local, batch).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("difficulty_on", "degree", "entries"),
    [
        # Class 1 is missing: probabilities near 1, 1/2, near 0 and 1/2, so 2 of 4 are decided.
        ("missing", [0.0, 0.5], [0, 4]),
        ("active", [0.25, 0.0], [4, 0]),  # class 0: near 1, then 0.6, 0.65 and 1/2
    ],
)
def test_statistics_are_those_of_the_trained_model_from_the_last_warm_up_round_on(
    difficulty_on: str, degree: list[float], entries: list[int]
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
        assert update["difficulty"].weight.tolist() == entries


@pytest.mark.parametrize(
    ("weights", "expected"),
    [("counts", [[3, 1], [0, 0]]), ("clients", [[1, 1], [0, 0]]), ("samples", [[4, 4], [0, 0]])],
)
def test_choices_of_prototype_weights(weights: str, expected: list[list[float]]) -> None:
    """Of 4 images, class 0 is annotated as absent on 3 and as present on 1; class 1 on none."""
    method = replace(GREEDY, prototype_weights=weights)
    local = _local(method, round_index=1, known=KNOWN, labels=LABELS)
    update, _ = method.finish(local, {}, 1)
    assert update["prototypes"].weight.tolist() == expected


def test_the_published_loss_divides_by_all_classes_in_warm_up_and_without_consistency() -> None:
    # Logits 2, no prior; class 0 annotated with labels 1, 0, 0, 0, class 1 without any label:
    # Eq. 4 divides the sum over the annotated entries by 2 classes and 4 images.
    total = math.log1p(math.exp(-2.0)) + 3 * math.log1p(math.exp(2.0))
    settings = {**FedMLP.variants["published"], "logit_adjustment": False, "consistency": False}
    method = FedMLP(warmup_rounds=1, detection=False, **settings)
    batch = Batch((torch.zeros(4, 1, 1, 2),), LABELS.float(), KNOWN, torch.arange(4))
    for round_index in (0, 1):
        local = _local(method, round_index=round_index, known=KNOWN, labels=LABELS)
        local.state = method.begin(local)
        assert method.loss(local, batch).item() == pytest.approx(total / 8, rel=1e-6)


def test_the_published_difficulty_is_of_annotators_and_its_prototypes_are_of_equal_clients() -> (
    None
):
    method = FedMLP(warmup_rounds=1, **FedMLP.variants["published"])
    local = _local(method, round_index=0, known=KNOWN, labels=LABELS)
    decided = torch.tensor([[0.0, 0.0], [0.0, 0.0], [9.0, 0.0], [-9.0, 9.0]])
    local.predict = lambda weights, view: Output(torch.eye(4, 2), decided)
    local.state = method.begin(local)
    update, _ = method.finish(local, {}, 1)
    # Two of four annotated entries of class 0 are below 0.3 or above 0.7; class 1 has none.
    assert update["difficulty"].value.tolist() == [0.5, 0.0]
    assert update["difficulty"].weight.tolist() == [4, 0]
    assert update["prototypes"].weight.tolist() == [[1.0, 1.0], [0.0, 0.0]]
