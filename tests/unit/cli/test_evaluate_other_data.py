"""``fedquilt evaluate --data``: images of a hospital that has only some of the model's classes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.html_pages import Page
from typer.testing import CliRunner

from fedquilt.cli.main import app
from fedquilt.runs.finished_run import read_run
from fedquilt.runs.trained_images import FILE

QUICK = ("--rounds", "1", "--size", "8", "--backbone", "small-cnn", "--grey", "--method", "fedavg")


def write_images(folder: Path, header: str, rows: list[str], seed: int) -> Path:
    folder.mkdir()
    random = np.random.default_rng(seed)
    for number in range(len(rows)):
        pixels = random.integers(0, 250, (12, 12)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    lines = [header, *(f"{number}.png,{row}" for number, row in enumerate(rows))]
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on 20 images with two classes, in ``trained/run``."""
    root = tmp_path_factory.mktemp("trained")
    rows = [f"{number % 2},{number // 2 % 2}" for number in range(20)]
    data = write_images(root / "images", "image,bright,dark", rows, seed=0)
    result = CliRunner().invoke(
        app,
        ["run", "--data", str(data), "--labels", str(data / "labels.csv"), "--clients", "2",
         *QUICK, "--out", str(root / "run")],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    return root


def evaluate(run: Path, data: Path, *arguments: str) -> Any:
    labels = ("--data", str(data), "--labels", str(data / "labels.csv"))
    return CliRunner().invoke(app, ["evaluate", str(run), *labels, *arguments])


def facts(result: Any) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    content: dict[str, Any] = json.loads(result.stdout)
    return content


def test_a_hospital_with_one_of_the_classes_and_other_columns(trained: Path, tmp_path: Path):
    rows = [f"{40 + number},{number % 2}" for number in range(6)]
    data = write_images(tmp_path / "other", "image,age,dark", rows, seed=1)
    result = evaluate(trained / "run", data, "--json")
    found = facts(result)
    assert (found["images"], found["trained_images_left_out"]) == (6, 0)
    assert found["not_judged"] == ["bright"]
    assert found["unknown_columns"] == ["age"]
    rows_by_class = {row["class"]: row for row in found["classes"]}
    assert rows_by_class["bright"]["auc"] is None
    assert rows_by_class["dark"]["positives"] == 3
    assert found["averages"]["macro_auc"] == rows_by_class["dark"]["auc"]
    # An unjudged class is no 0 in the mean.
    assert found["averages"]["macro_f1"] == found["reports"]["global"]["per_class"]["f1"][1]
    assert "1 of 2 classes cannot be judged" in result.stderr
    assert "age: no class of this model, so not used" in result.stderr


def test_intervals_are_shown_and_kept_for_the_report(trained: Path, tmp_path: Path):
    rows = [f"p{number // 2},{number % 2}" for number in range(12)]  # six patients, all with both
    data = write_images(tmp_path / "other", "image,patient,dark", rows, seed=3)
    run = shutil.copytree(trained / "run", tmp_path / "run")
    found = facts(evaluate(run, data, "--json"))
    intervals = found["intervals"]["global"]
    assert (intervals["unit"], intervals["patients"]) == ("patient", 6)
    assert intervals["positive_patients"] == [0, 6]
    row = next(row for row in found["classes"] if row["class"] == "dark")
    auc = row["intervals"]["auc"]
    assert 0 <= auc["low"] <= row["auc"] == auc["value"] <= auc["high"] <= 1
    unjudged = next(row for row in found["classes"] if row["class"] == "bright")
    assert set(unjudged["intervals"]["auc"].values()) == {None}
    page = Page((run / "report.html").read_text(encoding="utf-8"))
    assert "On other people's data: other, labels.csv" in page.headings
    assert "1 of 2 findings could not be judged" in page.text
    assert "6 (6)" in page.cells  # positive images (patients)
    assert f"{100 * auc['low']:.1f}–{100 * auc['high']:.1f}" in page.text
    assert str(tmp_path) not in page.text  # where the data lie is nobody's business
    kept = {path.name for path in (run / "evaluations").iterdir()}
    assert "95 % interval" in evaluate(run, data).stdout
    # The same data again replace their file.
    assert {path.name for path in (run / "evaluations").iterdir()} == kept


def test_names_are_mapped(trained: Path, tmp_path: Path):
    data = write_images(tmp_path / "other", "image,dunkel", ["1", "0", "1"], seed=1)
    assert evaluate(trained / "run", data).exit_code == 1
    names = tmp_path / "names.toml"
    names.write_text('[labels]\n"dunkel" = "dark"\n')
    found = facts(evaluate(trained / "run", data, "--label-names", str(names), "--json"))
    assert found["not_judged"] == ["bright"]


def test_a_single_image_can_be_judged(trained: Path, tmp_path: Path):
    data = write_images(tmp_path / "other", "image,dark", ["1"], seed=1)
    assert facts(evaluate(trained / "run", data, "--json"))["images"] == 1


def test_images_that_were_trained_on_are_left_out(trained: Path):
    result = evaluate(trained / "run", trained / "images", "--json")
    found = facts(result)
    assert (found["images"], found["trained_images_left_out"]) == (4, 16)
    assert "THE MODEL WAS TRAINED ON 16 OF THESE IMAGES" in result.stderr
    own = facts(CliRunner().invoke(app, ["evaluate", str(trained / "run"), "--json"]))
    assert found["averages"] == own["averages"]  # what is left are the run's test images


def test_only_trained_images_are_refused(trained: Path, tmp_path: Path):
    shutil.copytree(trained / "images", tmp_path / "some")
    run = read_run(trained / "run")
    splits = run.recipe.data.load(trained / "cache")
    name = splits.train.ids[int(run.allocation.holdings[0].indices[0])]
    lines = (trained / "images" / "labels.csv").read_text().splitlines()
    row = next(line for line in lines if line.startswith(f"{name},"))
    (tmp_path / "some" / "labels.csv").write_text(f"image,bright,dark\n{row}\n")
    result = evaluate(trained / "run", tmp_path / "some")
    assert result.exit_code == 1
    assert "trained on all 1 of these images" in result.stderr


def test_a_run_without_hashes_says_so(trained: Path, tmp_path: Path):
    shutil.copytree(trained / "run", tmp_path / "run")
    (tmp_path / "run" / FILE).unlink()
    result = evaluate(tmp_path / "run", trained / "images", "--json")
    found = facts(result)
    assert (found["images"], found["trained_images_left_out"]) == (20, None)
    assert "whether the model was trained on these images is not known" in result.stderr


def test_test_rows_of_a_split_column(trained: Path, tmp_path: Path):
    rows = ["1,test", "0,train", "0,test"]
    data = write_images(tmp_path / "other", "image,dark,part", rows, seed=1)
    assert facts(evaluate(trained / "run", data, "--split-column", "part", "--json"))["images"] == 2
    rows = ["1,train", "0,train"]
    data = write_images(tmp_path / "none", "image,dark,part", rows, seed=1)
    result = evaluate(trained / "run", data, "--split-column", "part")
    assert result.exit_code == 1
    assert "no row of" in result.stderr
