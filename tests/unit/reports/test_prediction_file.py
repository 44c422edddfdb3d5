"""Prediction files: safe cells, one row per class, errors, and a name only when complete."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from fedquilt.core.errors import UserError
from fedquilt.reports.prediction_file import COLUMNS, prediction_file, safe_cell

ROW = {
    "image": "=1+1.png",
    "class": "@SUM(A1)",
    "logit": -1.5,
    "probability": 0.25,
    "calibrated": None,
    "threshold": 0.5,
    "decision": "absent",
    "unlike_training": "no",
}


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_text_that_a_spreadsheet_would_run_gets_an_apostrophe(start: str):
    assert safe_cell(f"{start}cmd") == f"'{start}cmd"


@pytest.mark.parametrize("harmless", ["a=1", "'=1", "", -1.5, None, 0])
def test_other_text_and_numbers_stay(harmless: object):
    assert safe_cell(harmless) == harmless


def test_csv_has_a_row_per_class_and_one_for_a_bad_file(tmp_path: Path):
    path = tmp_path / "new" / "out.csv"
    with prediction_file(path, {}) as file:
        file.add("=1+1.png", [ROW, ROW | {"class": "b, c", "decision": "not judged"}], None)
        file.add("bad.png", [], "damaged")
        assert not path.exists()
    with path.open(newline="", encoding="utf-8") as read:
        rows = list(csv.reader(read))
    assert rows == [
        list(COLUMNS),
        ["'=1+1.png", "'@SUM(A1)", "-1.5", "0.25", "", "0.5", "absent", "no", ""],
        ["'=1+1.png", "b, c", "-1.5", "0.25", "", "0.5", "not judged", "no", ""],
        ["bad.png", "", "", "", "", "", "", "", "damaged"],
    ]


def test_json_lines_name_the_model_with_every_image(tmp_path: Path):
    with prediction_file(tmp_path / "out.jsonl", {"model": "sha256:00"}) as file:
        file.add("=1+1.png", [ROW], None)
        file.add("bad\udcff.png", [], "damaged")  # a file name that is not UTF-8
    one, two = map(json.loads, (tmp_path / "out.jsonl").read_text("utf-8").splitlines())
    without_image = {key: value for key, value in ROW.items() if key != "image"}
    assert one == {
        "image": "=1+1.png",
        "model": "sha256:00",
        "error": None,
        "predictions": [without_image],
    }
    assert (two["error"], two["predictions"]) == ("damaged", [])


def test_json_is_one_document_with_the_fields_of_the_lines(tmp_path: Path):
    for ending in ("json", "jsonl"):
        with prediction_file(tmp_path / f"out.{ending}", {"model": "sha256:00"}) as file:
            file.add("=1+1.png", [ROW], None)
            file.add("bad\udcff.png", [], "damaged")
    document = json.loads((tmp_path / "out.json").read_text("utf-8"))
    lines = map(json.loads, (tmp_path / "out.jsonl").read_text("utf-8").splitlines())
    assert document["model"] == "sha256:00"
    assert [{"model": "sha256:00", **image} for image in document["images"]] == list(lines)


@pytest.mark.parametrize("facts", [{}, {"model": "sha256:00"}])
def test_json_without_images_is_a_document_too(tmp_path: Path, facts: dict[str, str]):
    with prediction_file(tmp_path / "out.json", facts):
        pass
    assert json.loads((tmp_path / "out.json").read_text("utf-8")) == facts | {"images": []}


def test_an_interrupted_file_keeps_its_rows_under_another_name(tmp_path: Path):
    def interrupted() -> None:
        with prediction_file(tmp_path / "out.csv", {}) as file:
            file.add("a.png", [ROW], None)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv.partial"]
    assert "@SUM" in (tmp_path / "out.csv.partial").read_text()


def test_other_endings_and_existing_files_are_refused(tmp_path: Path):
    with pytest.raises(UserError, match=r"ends in \.csv, \.json or \.jsonl"):
        prediction_file(tmp_path / "out.xlsx", {})
    (tmp_path / "out.csv").write_text("mine")
    with pytest.raises(UserError, match="already exists; give another --out"):
        prediction_file(tmp_path / "out.csv", {})
