"""predict_files(): batches of files, bad files, and models whose method is not installed."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image
from support.tiny_runs import CLASSES, make_run

from fedquilt.core.errors import UserError
from fedquilt.runs import predictions
from fedquilt.runs.finished_run import Run, read_run
from fedquilt.runs.model_json import read_card
from fedquilt.runs.predictions import predict_files
from fedquilt.runs.trained_models import open_models


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run(tmp_path_factory.mktemp("runs") / "fedmlp")


@pytest.fixture
def images(finished: Run, tmp_path: Path) -> list[Path]:
    """Seven files; the third is no image and the fifth is missing."""
    paths = [tmp_path / f"{number}.png" for number in range(7)]
    for path, pixels in zip(paths, finished.recipe.data.load(Path("unused")).test.images):
        Image.fromarray(pixels[0].numpy()).save(path)
    paths[2].write_text("text")
    paths[4].unlink()
    return paths


def test_batches_give_what_one_tensor_gives(
    finished: Run, images: list[Path], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(predictions, "BATCH", 3)
    batches = list(predict_files(open_models(finished.path), images))
    assert [batch.start for batch in batches] == [0, 3, 6]
    assert [batch.positions() for batch in batches] == [[0, 1], [3, 5], [6]]
    found = [entry for batch in batches for entry in batch.rows()]
    assert [name for name, _, _ in found] == list(map(str, images))
    reasons = ["not a PNG, JPEG, TIFF or DICOM file", "there is no such file"]
    assert [error for _, _, error in found if error] == reasons
    rows = [row for _, rows, _ in found for row in rows]
    expected = finished.predict([path for place, path in enumerate(images) if place not in (2, 4)])
    assert [row["decision"] for row in rows] == [row["decision"] for row in expected.rows()]
    logits = torch.cat([batch.prediction.logits for batch in batches])
    torch.testing.assert_close(logits, expected.logits)
    assert torch.equal(torch.sigmoid(expected.logits), expected.probabilities)


def test_a_run_of_a_method_that_is_not_installed_predicts(
    finished: Run, images: list[Path], tmp_path: Path
):
    copy = tmp_path / "elsewhere"
    shutil.copytree(finished.path, copy)
    recipe = json.loads((copy / "recipe.json").read_text())
    recipe["method"] = {"name": "of-a-script-of-mine", "strength": 3}
    (copy / "recipe.json").write_text(json.dumps(recipe))
    logits = finished.predict(images[:2]).logits
    assert torch.equal(read_run(copy).predict(images[:2]).logits, logits)
    (batch,) = predict_files(open_models(copy), images[:2])
    assert torch.equal(batch.prediction.logits, logits)
    # Nothing but the model's two files is read.
    for path in copy.iterdir():
        if path.name not in ("model.json", "model.safetensors"):
            path.unlink() if path.is_file() else shutil.rmtree(path)
    (batch,) = predict_files(open_models(copy), images[:2])
    assert torch.equal(batch.prediction.logits, logits)


def test_a_run_of_an_earlier_version_opens(finished: Run, images: list[Path], tmp_path: Path):
    copy = tmp_path / "old"
    shutil.copytree(finished.path, copy)
    card = json.loads((copy / "model.json").read_text())
    old = {name: card[name] for name in ("classes", "image_shape", "model", "threshold", "files")}
    (copy / "model.json").write_text(json.dumps(old))
    completed = read_card(open_models(copy).folder)
    new = ("format", "served")
    assert completed == {key: value for key, value in card.items() if key not in new}
    (batch,) = predict_files(open_models(copy), images[:2])
    assert torch.equal(batch.prediction.logits, finished.predict(images[:2]).logits)


def test_a_newer_or_damaged_card_is_refused(finished: Run, tmp_path: Path):
    copy = tmp_path / "copy"
    shutil.copytree(finished.path, copy)
    card = json.loads((copy / "model.json").read_text())
    for content, message in (
        (card | {"format": 99}, "format 99, this fedquilt knows up to 2"),
        ({"files": {}}, "does not describe a model"),
    ):
        (copy / "model.json").write_text(json.dumps(content))
        with pytest.raises(UserError, match=message):
            _ = open_models(copy).card


def test_a_client_does_not_judge_what_it_never_annotated(tmp_path: Path, images: list[Path]):
    run = make_run(tmp_path / "local", "local-only")
    (own,) = (name for name, clients in run.annotators.items() if "client-1" in clients)
    rows = run.predict(images[:1], client="client-1").rows()
    judged = {row["class"] for row in rows if row["decision"] != "not judged"}
    assert judged == {own}
    assert {row["class"] for row in rows if row["threshold"] is None} == set(CLASSES) - judged


def test_the_hash_is_that_of_the_weights(finished: Run, tmp_path: Path):
    content = (finished.path / "model.safetensors").read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    assert open_models(finished.path).hash_of(None) == f"sha256:{digest}"
