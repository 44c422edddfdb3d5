"""FedLGT: calibration by the received model, fixed text embeddings, and the released variant."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from support.tiny_federation import CLASSES, make_federation, make_method
from support.tiny_runs import CLASSES as DIGITS
from support.tiny_runs import tiny_settings
from support.told_client import told_batch, told_client
from torch import tensor

from fedquilt.core.errors import UserError
from fedquilt.core.tree import same_bits
from fedquilt.methods.fedlgt import FedLGT
from fedquilt.metrics import score
from fedquilt.models.class_names.text_vectors import HASHED, PROMPT, text_vectors
from fedquilt.recipes.recipe import recipe_from
from fedquilt.runs.experiment import run
from fedquilt.runs.finished_run import read_run
from fedquilt.training.client import Workspace, run_client
from fedquilt.training.rounds import run_rounds, start_server

TABLES = ("head.labels", "head.negative", "head.positive")
LABELS = tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
KNOWN = torch.ones(2, 3, dtype=torch.bool)
DRAWN = tensor([[True, True, False], [True, True, True]])
# Probabilities 0.5, 0.51, 0.5 and 0.49, 0.9, 0.5
RECEIVED = torch.logit(tensor([[0.5, 0.51, 0.5], [0.49, 0.9, 0.5]]))


def _told(method: FedLGT, known: torch.Tensor = KNOWN) -> tuple[list[list[int]], float]:
    """The states that the model received, and the loss over ln 2: the number of hidden labels."""
    local = told_client(method, LABELS, known, torch.zeros(2, 3), RECEIVED)
    loss = method.loss(local, told_batch(LABELS, known, DRAWN))
    return local.model.states, loss.item() / math.log(2)


def test_uncertain_labels_are_hidden() -> None:
    states, guessed = _told(FedLGT())
    assert states == [[-1, -1, -1], [-1, 1, -1]]
    assert guessed == pytest.approx(5)


def test_without_calibration_the_drawn_labels_are_revealed() -> None:
    states, guessed = _told(FedLGT(calibrate=False))
    assert states == [[1, 0, -1], [0, 1, 1]]
    assert guessed == pytest.approx(1)


def test_a_margin_of_zero_is_uncertain_at_one_half_only() -> None:
    states, guessed = _told(FedLGT(margin=0.0))
    assert states == [[-1, 0, -1], [0, 1, -1]]
    assert guessed == pytest.approx(3)


def test_a_margin_of_one_half_hides_everything() -> None:
    states, guessed = _told(FedLGT(margin=0.5))
    assert states == [[-1] * 3] * 2
    assert guessed == pytest.approx(6)
    unannotated = tensor([[True, False, True], [False, True, True]])
    assert _told(FedLGT(margin=0.5), unannotated)[1] == pytest.approx(4)


def test_the_threshold_moves_the_uncertain_range() -> None:
    assert _told(FedLGT(threshold=0.9))[0] == [[1, 0, -1], [0, -1, 1]]


def test_calibration_does_not_edit_labels_or_what_was_received() -> None:
    local = told_client(FedLGT(), LABELS, KNOWN, torch.zeros(2, 3), RECEIVED)
    batch = told_batch(LABELS.clone(), KNOWN, DRAWN.clone())
    before = RECEIVED.clone()
    FedLGT().loss(local, batch).backward()
    assert torch.equal(batch.labels, LABELS)
    assert torch.equal(batch.drawn, DRAWN)
    assert torch.equal(RECEIVED, before)


def test_released_calibrates_the_first_image_and_swaps_the_words() -> None:
    released = FedLGT(**FedLGT.variants["released"])
    local = told_client(released, LABELS, KNOWN, torch.zeros(2, 3), RECEIVED)
    loss = released.loss(local, told_batch(LABELS, KNOWN, DRAWN))
    assert local.model.states == [[-1, -1, -1], [0, 1, 1]]
    assert loss.item() == pytest.approx(3 * math.log(2), rel=1e-6)
    assert local.forward.asked == 1
    method = make_method("fedlgt", **FedLGT.variants["released"])
    network = make_federation().fitted(method).task.build_network()
    words = text_vectors(HASHED, CLASSES, PROMPT, 64)[3:]  # negative, positive
    assert torch.equal(network.head.positive, words[0])
    assert torch.equal(network.head.negative, words[1])


def test_the_received_model_is_in_evaluation_mode_with_nothing_revealed() -> None:
    method = make_method("fedlgt", dropout=0.9)
    federation = make_federation().fitted(method)
    workspace = Workspace.of(federation.task, torch.device("cpu"))
    weights = start_server(method, federation.task, federation.engine())["weights"]
    images = torch.rand(2, 1, 8, 8)
    first, again = (workspace.forward(weights, images).logits for _ in range(2))
    assert torch.equal(first, again)
    network = federation.task.build_network().eval()
    unknown = torch.full((2, 3), -1)
    with torch.no_grad():
        assert torch.equal(network(images, unknown).logits, first)


def test_text_embeddings_stay_the_same_bits_at_all_clients_in_all_rounds() -> None:
    method = make_method("fedlgt")
    federation = make_federation(backbone="small-resnet", rounds=3).fitted(method)
    task, engine = federation.task, federation.engine()
    server = start_server(method, task, engine)
    expected = text_vectors(HASHED, CLASSES, PROMPT, task.feature_count)
    workspace = Workspace.of(task, torch.device("cpu"))
    for round_ in run_rounds(method, task, engine, server):
        weights = round_.server["weights"]
        assert torch.equal(weights["head.labels"], expected[:3])
        assert torch.equal(weights["head.negative"], expected[3])
        assert torch.equal(weights["head.positive"], expected[4])
        received = method.broadcast(round_.server)
        for data in federation.clients.values():
            update, _ = run_client(method, task, workspace, data, received, {}, round_.index)
            change = update["buffers"].value
            assert not any(bool(change[table].any()) for table in TABLES)
            assert bool(change["backbone.bn1.running_mean"].any())  # others did move


def test_learnt_embeddings_and_no_calibration_are_fedc_tran_bit_for_bit() -> None:
    federation = make_federation(annotated=((0, 1, 2), (0, 1), (1, 2)), rounds=2)
    baseline = federation.train(make_method("fedc-tran"))
    off = {"text_encoder": "learned", "calibrate": False}
    assert same_bits(federation.train(make_method("fedlgt", **off)), baseline)
    for switch in off:  # each alone is not
        settings = {name: value for name, value in off.items() if name != switch}
        assert not same_bits(federation.train(make_method("fedlgt", **settings)), baseline)


def test_every_setting_matters() -> None:
    federation = make_federation(annotated=((0, 1, 2), (0, 1), (1, 2)), rounds=1)
    default = federation.train(make_method("fedlgt", margin=0.1))
    for change in (
        {"margin": 0.0},
        {"threshold": 0.6},
        {"first_sample_only": True},
        {"swapped_states": True},
    ):
        changed = federation.train(make_method("fedlgt", **{"margin": 0.1} | change))
        assert not same_bits(changed, default), change


def test_a_trained_model_needs_no_encoder(tmp_path: Path) -> None:
    file, texts = tmp_path / "vectors.safetensors", (*DIGITS, "negative", "positive")
    rows = torch.eye(64)[: len(texts)]
    save_file({text: row.clone() for text, row in zip(texts, rows)}, file)
    method = {"name": "fedlgt", "text_encoder": str(file), "training": {"epochs": 1}}
    run(recipe_from(tiny_settings() | {"method": method}), tmp_path / "run")
    models = read_run(tmp_path / "run").models
    images = torch.randint(0, 256, (5, *models.image_shape), dtype=torch.uint8)
    before = models.probabilities(images, None)
    file.unlink()
    models = read_run(tmp_path / "run").models
    assert models.card["model"]["head_settings"]["text_encoder"] == "stored"
    assert torch.equal(models.probabilities(images, None), before)
    assert torch.equal(models.network(None).head.labels, rows[:3])


def test_class_f1_is_the_harmonic_mean_of_class_precision_and_recall() -> None:
    # Class A: 43 of 100 positives found and nothing else: precision 1, recall 0.43. Class B: 250
    # predicted, 89 of 178 positives among them: precision 0.356, recall 0.5. C-P = 0.678 and
    # C-R = 0.465, as FedLGT's on FLAIR; C-F1 = 2 * 0.678 * 0.465 / 1.143 = 0.5517 (paper: 55.1).
    labels, predicted = (torch.zeros(400, 2, dtype=torch.uint8) for _ in range(2))
    labels[:100, 0], predicted[:43, 0] = 1, 1
    labels[:178, 1], predicted[89:339, 1] = 1, 1
    known = torch.ones(400, 2, dtype=torch.bool)
    averages = score(predicted.float(), labels, known, ("A", "B")).averages
    assert averages["class_precision"] == pytest.approx(0.678)
    assert averages["class_recall"] == pytest.approx(0.465)
    assert averages["class_f1"] == pytest.approx(0.5517, abs=5e-5)


def test_defaults_are_those_of_the_paper_but_for_the_encoder() -> None:
    method = FedLGT()
    assert (method.threshold, method.margin, method.told_share) == (0.5, 0.02, 0.75)
    assert method.prompt == PROMPT
    assert method.text_encoder == HASHED


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"threshold": 1.5}, "threshold must be in 0..1"),
        ({"margin": -0.1}, "margin 0 or more"),
        ({"text_encoder": "stored"}, "to train one, choose an encoder"),
        ({"told_share": 1.0}, "told_share must be"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        FedLGT(**settings)
