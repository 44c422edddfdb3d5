"""What newcomers stumble over: columns without options, spellings, files of other programs."""

from __future__ import annotations

import csv
import json
import unicodedata
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from fedquilt.cli.main import app
from fedquilt.runs.finished_run import read_run

QUICK = ("--rounds", "1", "--size", "8", "--backbone", "small-cnn", "--grey")
HEADER = ["image", "Site", "patient", "bright", "dark"]


@pytest.fixture(autouse=True)
def own_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("images").mkdir()
    write_labels()


def table() -> list[list[str]]:
    """24 grey images of two sites; each site annotates one of two findings."""
    rows = [[*HEADER]]
    for number in range(24):
        site, finding = number % 2, number // 2 % 2
        cells = [str(finding), ""] if site == 0 else ["", str(1 - finding)]
        rows.append([f"{number}.png", f"site {site}", f"person {number}", *cells])
    return rows


def write_labels(rows: list[list[str]] | None = None, before: str = "", separator: str = ","):
    rows = table() if rows is None else rows
    random = np.random.default_rng(0)
    for cells in rows[1:]:
        pixels = random.integers(0, 256, (12, 12)).astype(np.uint8)
        name = next(cell for cell in cells if cell.endswith(".png"))
        Image.fromarray(pixels).save(Path("images") / name)
    with Path("labels.csv").open("w", newline="", encoding="utf-8") as file:
        file.write(before)
        csv.writer(file, delimiter=separator).writerows(rows)


def invoke(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def run(*arguments: str):
    return invoke("run", "--data", "images", "--labels", "labels.csv", *arguments)


def check(*arguments: str):
    return invoke("data", "check", "images", "--labels", "labels.csv", *arguments)


def test_site_and_patient_columns_are_recognised_by_name():
    result = run("--method", "FedAvg-PL", *QUICK)
    assert result.exit_code == 0, result.output
    assert "the column 'Site' is used as the site column" in result.stderr
    assert "the column 'patient' is used as the patient column" in result.stderr
    done = read_run("runs/fedavg-pl-0")
    assert [holding.name for holding in done.allocation.holdings] == ["site 0", "site 1"]
    assert done.recipe.data.patient_column == "patient"
    evaluated = invoke("evaluate", str(done.path), "--data", "images", "--labels", "labels.csv")
    assert evaluated.exit_code == 0, evaluated.output


def test_clients_instead_of_the_recognised_sites():
    result = run("--clients", "3", "--method", "fedavg-pl", *QUICK, "--out", "dealt")
    assert result.exit_code == 0, result.output
    assert len(read_run("dealt").allocation.holdings) == 3


def test_classes_can_be_chosen_for_training_and_for_evaluation():
    one = ("--classes", "dark", "--ignore-columns", "bright")
    both = run("--method", "fedavg-pl", *QUICK, "--out", "both")
    assert both.exit_code == 0, both.output
    sites = ("--ignore-columns", "bright,Site", "--clients", "1")
    chosen = run("--classes", "dark", *sites, "--method", "fedavg-pl", *QUICK, "--out", "one")
    assert chosen.exit_code == 0, chosen.output
    assert read_run("one").classes == ("dark",)
    evaluated = invoke("evaluate", "both", "--classes", "dark", "--json")
    assert evaluated.exit_code == 0, evaluated.output
    rows = {row["class"]: row for row in json.loads(evaluated.stdout)["classes"]}
    assert rows["bright"]["positives"] == 0
    assert rows["dark"]["positives"] > 0
    other = invoke("evaluate", "both", "--data", "images", "--labels", "labels.csv", *one)
    assert other.exit_code == 0, other.output
    wrong = invoke("evaluate", "both", "--classes", "darc")
    assert "the run has no class 'darc'; did you mean 'dark'?" in wrong.stderr


def test_corrected_command_may_use_the_folder_of_the_refused_one():
    """The prior is missed by a hook of the method, after the data were read."""
    rows = [[cell.replace("0", "") if i > 2 else cell for i, cell in enumerate(row)]
            for row in table()]  # fmt: skip
    write_labels(rows)
    for extra in ((), ("--set", "method.training.lr=fast"), ("--weights", "none.safetensors")):
        refused = run("--method", "fedpu", *QUICK, "--out", "study", *extra)
        assert refused.exit_code == 1
        assert not Path("study").exists()
    corrected = run("--method", "fedpu", *QUICK, "--out", "study", "--set", "method.prior=[0.3]")
    assert corrected.exit_code == 0, corrected.output


@pytest.mark.parametrize(
    ("column", "hint"),
    [
        ("filename", "'filename': name it with image_column"),
        ("Image ID", "did you mean 'Image ID'?"),
    ],
)
def test_column_with_the_meaning_is_suggested(column: str, hint: str):
    rows = table()
    rows[0][0] = column
    write_labels(rows)
    assert hint in " ".join(check("--no-picture").stdout.split())


def test_patient_column_of_another_name_is_suggested():
    rows = table()
    rows[0][2] = "subject_id"
    write_labels(rows)
    shown = " ".join(check("--no-picture", "--patient-column", "patient").stdout.split())
    assert "no column 'patient' for the patient, but there is 'subject_id'" in shown


def test_index_of_pandas_and_empty_columns_are_tolerated():
    rows = [[str(i - 1) if i else "", *row, "", ""] for i, row in enumerate(table())]
    rows[3] += ["", ""]  # one row is longer still
    write_labels(rows)
    result = check("--no-picture")
    assert result.exit_code == 0, result.stdout
    shown = " ".join(result.stdout.split())
    assert "24 images, 2 classes, 2 sites" in shown
    assert "with row numbers, are not read: 1, 7, 8" in shown


def test_unnamed_column_with_content_is_still_a_problem():
    rows = [[*row, "" if i == 0 else "x"] for i, row in enumerate(table())]
    write_labels(rows)
    assert "column 6 has no name" in check("--no-picture").stdout


@pytest.mark.parametrize("separator", [";", "\t"])
def test_separator_line_of_spreadsheets(separator: str):
    write_labels(before=f"sep={separator}\n", separator=separator)
    result = check("--no-picture")
    assert result.exit_code == 0, result.stdout


def test_line_numbers_count_the_separator_line():
    rows = table()
    rows[1][3] = "maybe"
    write_labels(rows, before="sep=;\n", separator=";")
    assert "line 3, column 'bright'" in check("--no-picture").stdout


@pytest.mark.parametrize(("in_file", "on_disk"), [("NFC", "NFD"), ("NFD", "NFC")])
def test_accents_composed_or_not(in_file: str, on_disk: str):
    rows = table()
    rows[0][3] = unicodedata.normalize(in_file, "Erguß é")
    rows[1][0] = unicodedata.normalize(in_file, "é.png")
    write_labels(rows)
    Path("images", rows[1][0]).rename(Path("images", unicodedata.normalize(on_disk, "é.png")))
    listed = ("--classes", unicodedata.normalize(on_disk, "Erguß é") + ",dark")
    result = check("--no-picture", *listed)
    assert result.exit_code == 0, result.stdout


def test_check_does_not_overwrite_a_picture():
    Path("annotation_map.png").write_bytes(b"somebody's")
    result = check()
    assert "annotation map written to annotation_map-2.png" in result.stdout
    assert Path("annotation_map.png").read_bytes() == b"somebody's"
    named = check("--picture", "annotation_map.png")
    assert "annotation map written to annotation_map.png" in named.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("run", "images", "--labels", "labels.csv"),
            "is a folder and no recipe; to train on images in it: fedquilt run --data images",
        ),
        (("run", "--labels", "labels.csv"), "own data need both --data (the folder) and --labels"),
        (
            ("run", "--data", "imagse", "--labels", "labels.csv"),
            "--data: there is no folder imagse; give the images' folder",
        ),
        (
            ("run", "--data", "images", "--labels", "label.csv"),
            "--labels: there is no file label.csv; give a CSV file",
        ),
        (("sweep", "labels.csv"), "the recipe labels.csv is not valid TOML"),
        (("report", "images"), "images holds no recipe.json: it is not a run folder"),
    ],
)
def test_things_in_each_others_place(arguments: tuple[str, ...], message: str):
    result = invoke(*arguments)
    assert result.exit_code == 1
    assert message in result.stderr


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        (str.upper, "but there is one in other capitals: write names as the files have them"),
        ("images/{}".format, "but it is below "),
        (lambda name: name.removesuffix(".png"), "but there is one with the ending '.png'"),
    ],
)
def test_names_of_images_that_almost_fit(change: Callable[[str], str], hint: str):
    rows = table()
    for cells in rows[1:]:
        cells[0] = change(cells[0])
    with Path("labels.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    result = check("--no-picture")
    assert result.exit_code == 1
    assert hint in result.stdout
    assert "sites without a usable image" not in result.stdout  # of one mistake one problem


def test_only_the_problem_of_the_data_is_told():
    result = run("--ignore-columns", "Bright", *QUICK, "--rounds", "40", "--clients", "2")
    assert result.exit_code == 1
    assert "no column 'Bright' to ignore; did you mean 'bright'?" in result.stderr
    assert "warm-up" not in result.stderr
