"""``fedquilt predict``."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
from PIL import Image
from support.tiny_runs import CLASSES, make_run
from typer.testing import CliRunner

from fedquilt.cli.main import app
from fedquilt.runs.finished_run import Run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run(tmp_path_factory.mktemp("runs") / "fedmlp")


@pytest.fixture
def image(finished: Run, tmp_path: Path) -> str:
    path = tmp_path / "mosaic [1].png"  # square brackets are markup to rich
    pixels = finished.recipe.data.load(Path("unused")).test.images[0, 0]
    Image.fromarray(pixels.numpy()).save(path)
    return str(path)


def predict(run: Run, *arguments: str):
    return CliRunner().invoke(app, ["predict", str(run.path), *arguments])


def test_json_is_what_the_run_predicts(finished: Run, image: str):
    printed = json.loads(predict(finished, image, image, "--json").stdout)
    assert printed["threshold"] == 0.5
    assert printed["predictions"] == finished.predict([image, image]).rows()


def test_every_class_is_shown_with_its_verdict(finished: Run, image: str):
    text = predict(finished, image).stdout
    assert image in text
    for row in finished.predict([image]).rows():
        line = next(line for line in text.splitlines() if row["class"] in line)
        assert line.split()[-2:] == [f"{100 * row['probability']:.1f}", row["decision"]]


def test_threshold_decides(finished: Run, image: str):
    text = predict(finished, image, "--threshold", "0").stdout
    assert text.count(" present ") == len(CLASSES)
    assert "probability of at least 0.0 %" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.png"], "nowhere.png: there is no such file"),
        (["x.png", "--client", "client-0"], "leave out client=NAME"),
        (["*.nothing"], "no file matches *.nothing"),
        (["x.png", "--out", "x.txt"], "ends in .csv, .json or .jsonl"),
        (["x.png", "--threshold", "-1"], "--threshold must be a probability"),
    ],
)
def test_mistakes_are_explained(finished: Run, arguments: list[str], message: str):
    result = predict(finished, *arguments)
    assert result.exit_code == 1
    assert message in result.stderr


def test_a_client_must_be_chosen(tmp_path: Path, image: str):
    personal = make_run(tmp_path / "local", "local-only")
    assert "choose one with client=NAME (--client): client-0" in predict(personal, image).stderr
    assert predict(personal, image, "--client", "client-2").exit_code == 0


def test_a_folder_becomes_a_csv_of_all_classes(finished: Run, image: str, tmp_path: Path):
    out = tmp_path / "new" / "predictions.csv"
    result = predict(finished, str(tmp_path), "--out", str(out))
    assert result.exit_code == 0, result.stderr
    with out.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    expected = finished.predict([image]).rows()
    assert [row["class"] for row in rows] == list(CLASSES)
    for row, wanted in zip(rows, expected):
        assert float(row["logit"]) == wanted["logit"]
        assert float(row["probability"]) == wanted["probability"]
        assert (row["decision"], row["threshold"]) == (wanted["decision"], "0.5")
        assert row["error"] == row["calibrated"] == ""
    counts = {word: sum(row["decision"] == word for row in rows) for word in ("present", "absent")}
    assert sum(counts.values()) == len(CLASSES)
    assert f"written: {out}" in result.stdout


def test_bad_files_do_not_stop_the_others(finished: Run, image: str, tmp_path: Path):
    bad = tmp_path / "bad.png"
    bad.write_text("text")
    out = tmp_path / "predictions.jsonl"
    result = predict(finished, str(bad), image, "gone.png", "--out", str(out))
    assert result.exit_code == 1
    assert "2 of 3 images could not be predicted" in result.stderr
    assert f"{bad}: not a PNG" in result.stderr
    first, second, third = map(json.loads, out.read_text(encoding="utf-8").splitlines())
    assert first["error"].startswith("not a PNG")
    assert third["error"] == "there is no such file"
    assert second["model"].startswith("sha256:")
    expected = finished.predict([image]).rows()
    assert second["predictions"][0]["probability"] == expected[0]["probability"]
    printed = predict(finished, str(bad), image, "--json")
    assert printed.exit_code == 1
    rows = json.loads(printed.stdout)["predictions"]
    assert rows[0] == {"image": str(bad), "error": first["error"]}
    assert rows[1:] == expected


def test_json_file_is_one_document(finished: Run, image: str, tmp_path: Path):
    out = tmp_path / "predictions.json"
    assert predict(finished, image, "--out", str(out)).exit_code == 0
    document = json.loads(out.read_text(encoding="utf-8"))
    assert document["model"].startswith("sha256:")
    (found,) = document["images"]
    assert [{"image": found["image"], **row} for row in found["predictions"]] == (
        finished.predict([image]).rows()
    )


def test_an_existing_table_is_not_overwritten(finished: Run, image: str, tmp_path: Path):
    (tmp_path / "mine.csv").write_text("mine")
    result = predict(finished, image, "--out", str(tmp_path / "mine.csv"))
    assert result.exit_code == 1
    assert "already exists" in result.stderr
    assert (tmp_path / "mine.csv").read_text() == "mine"


def test_thresholds_that_differ_are_shown(finished: Run, image: str, tmp_path: Path):
    copy = tmp_path / "copy"
    shutil.copytree(finished.path, copy)
    card = json.loads((copy / "model.json").read_text())
    logit = finished.predict([image]).logits[0, 0].item()
    card["thresholds"] = {
        "rule": "sensitivity>=0.95",
        "classes": {CLASSES[0]: {"logit": logit + 1e-6, "probability": 0.9}},
    }
    (copy / "model.json").write_text(json.dumps(card))
    text = CliRunner().invoke(app, ["predict", str(copy), image]).stdout
    (line,) = (line for line in text.splitlines() if CLASSES[0] in line)
    assert line.split()[-2:] == ["90.0", "absent"]
    assert "threshold (%)" in text
    assert "probability of at least" not in text
    facts = json.loads(CliRunner().invoke(app, ["predict", str(copy), image, "--json"]).stdout)
    assert facts["rule"] == "sensitivity>=0.95"
