"""read_run(): results, evaluation and predictions from a run folder."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from support.tiny_runs import CLASSES, CLIENTS, make_run

import fedquilt
from fedquilt.core.errors import UserError
from fedquilt.data.source import Splits
from fedquilt.runs.finished_run import Run, read_run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run(tmp_path_factory.mktemp("runs") / "fedmlp")


@pytest.fixture(scope="module")
def personal(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run(tmp_path_factory.mktemp("runs") / "local", "local-only")


@pytest.fixture(scope="module")
def splits(finished: Run) -> Splits:
    return finished.recipe.data.load(Path("unused"))


def test_is_exported_by_the_package(finished: Run):
    assert isinstance(fedquilt.read_run(finished.path), fedquilt.Run)


def test_reads_the_files_of_the_run(finished: Run):
    assert finished.classes == CLASSES
    assert [record["round"] for record in finished.history] == [1, 2]
    assert finished.result["recipe_hash"] == finished.recipe.hash
    assert finished.annotators == {name: [client] for name, client in zip(CLASSES, CLIENTS)}


def test_evaluating_the_test_images_gives_the_stored_report(finished: Run, splits: Splits):
    report = finished.evaluate([splits.test]).to_dict()
    assert report == finished.result["reports"]["global"]


def test_several_data_sets_are_scored_together(finished: Run, splits: Splits):
    halves = [splits.test.select(range(15)), splits.test.select(range(15, 40))]
    assert finished.evaluate(halves) == finished.evaluate([splits.test])


def test_client_models_give_their_stored_reports(personal: Run, splits: Splits):
    for client in CLIENTS:
        report = personal.evaluate([splits.test], client=client).to_dict()
        assert report == personal.result["reports"][client]


def test_the_threshold_decides_which_classes_are_predicted(finished: Run, splits: Splits):
    prediction = finished.predict(splits.test.images[:4])
    assert torch.equal(prediction.present, prediction.probabilities >= 0.5)
    middle = prediction.probabilities.median().item()
    lower = finished.predict(splits.test.images[:4], threshold=middle)
    assert torch.equal(lower.present, prediction.probabilities >= middle)
    assert 0 < lower.present.sum() < lower.present.numel()


def test_rows_name_image_and_class(finished: Run, splits: Splits):
    prediction = finished.predict(splits.test.images[:2])
    rows = prediction.rows()
    assert len(rows) == 2 * len(CLASSES)
    assert (rows[4]["image"], rows[4]["class"]) == ("1", CLASSES[1])
    assert rows[4]["probability"] == prediction.probabilities[1, 1].item()
    assert (rows[4]["decision"] == "present") is bool(prediction.present[1, 1])


def test_a_file_and_its_pixels_give_the_same_result(finished: Run, splits: Splits, tmp_path: Path):
    path = tmp_path / "mosaic.png"
    Image.fromarray(splits.test.images[7, 0].numpy()).save(path)
    from_file = finished.predict([path])
    assert from_file.images == (str(path),)
    expected = finished.predict(splits.test.images[7:8]).probabilities
    assert torch.equal(from_file.probabilities, expected)


def test_no_images_give_no_rows(finished: Run):
    assert finished.predict([]).rows() == []


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(2, 3, 16, 16, dtype=torch.uint8), r"\(N, 1, 16, 16\), found uint8 of shape"),
        (torch.zeros(2, 1, 16, 16), "found float32"),
        (["nowhere.png"], "there is no image file nowhere.png"),
    ],
)
def test_unusable_images_are_refused(finished: Run, images: object, message: str):
    with pytest.raises(UserError, match=message):
        finished.predict(images)


def test_a_file_that_is_not_an_image_is_refused(finished: Run, tmp_path: Path):
    (tmp_path / "text.png").write_text("text")
    with pytest.raises(UserError, match=r"text\.png cannot be used: not a PNG"):
        finished.predict([tmp_path / "text.png"])


def test_the_client_must_match_the_run(finished: Run, personal: Run, splits: Splits):
    with pytest.raises(UserError, match="one global model; leave out client=NAME"):
        finished.predict(splits.test.images, client="client-0")
    with pytest.raises(UserError, match=r"choose one with client=NAME .*: client-0, client-1"):
        personal.predict(splits.test.images)
    with pytest.raises(UserError, match="did you mean 'client-1'"):
        personal.predict(splits.test.images, client="client1")


def test_other_classes_are_refused(finished: Run, splits: Splits):
    with pytest.raises(UserError, match="give data with the same classes"):
        finished.evaluate([replace(splits.test, classes=("a", "b", "c"))])


def test_damaged_weights_are_refused(finished: Run, splits: Splits, tmp_path: Path):
    copy = tmp_path / "copy"
    shutil.copytree(finished.path, copy)
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(UserError, match=r"model\.safetensors cannot be read"):
        read_run(copy).predict(splits.test.images[:1])


def test_a_study_without_models_says_that_they_are_at_the_sites(
    personal: Run, splits: Splits, tmp_path: Path
):
    shutil.copytree(personal.path, tmp_path / "study")
    (tmp_path / "study" / "model.json").unlink()
    with pytest.raises(UserError, match=r"every site has its own.*fedquilt site model"):
        read_run(tmp_path / "study").predict(splits.test.images[:1])


def test_unfinished_run_has_a_history_but_no_result(finished: Run, tmp_path: Path):
    for name in ("recipe.json", "history.jsonl", "partition.npz"):
        shutil.copy(finished.path / name, tmp_path / name)
    unfinished = read_run(tmp_path)
    assert len(unfinished.history) == 2
    with pytest.raises(UserError, match=r"holds no result\.json"):
        _ = unfinished.result


def test_missing_folder_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match="there is no run folder"):
        read_run(tmp_path / "nothing")
    with pytest.raises(UserError, match=r"holds no recipe\.json"):
        read_run(tmp_path)
