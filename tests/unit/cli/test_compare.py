"""``fedquilt compare``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.html_pages import Page
from support.tiny_runs import CLASSES, make_run
from typer.testing import CliRunner

from fedquilt.cli.main import app
from fedquilt.runs.finished_run import read_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("runs")
    made = [
        make_run(folder / "a0", "fedavg"),
        make_run(folder / "a1", "fedavg", seed=1),
        make_run(folder / "m0", "fedmlp"),
    ]
    return [str(run.path) for run in made]


@pytest.fixture(autouse=True)
def elsewhere_than_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The report of runs that are not together is written into the current folder."""
    monkeypatch.chdir(tmp_path)


def compare(*arguments: str):
    return CliRunner().invoke(app, ["compare", *arguments])


def test_seeds_become_one_row(runs: list[str]):
    result = compare(*runs)
    assert result.exit_code == 0, result.output
    table, _, hardest = result.stdout.partition("Hardest classes")
    rows = [line.split() for line in table.splitlines() if line.strip().startswith("fed")]
    assert [row[:2] for row in rows] == [["fedavg", "2"], ["fedmlp", "1"]]
    assert "±" in rows[0]
    assert "±" not in rows[1]
    assert all(name in hardest for name in CLASSES)


def test_the_report_lies_beside_the_runs(runs: list[str], tmp_path: Path):
    beside = Path(runs[0]).parent / "comparison.html"
    beside.unlink(missing_ok=True)
    assert compare(*runs, "--json").exit_code == 0
    assert compare(*runs, "--format", "csv").exit_code == 0
    assert not beside.exists()  # what other programs read is all that is written
    assert f"report: {beside}" in compare(*runs).stderr.replace("\n", "")
    page = Page(beside.read_text(encoding="utf-8"))
    assert "fedavg and fedmlp compared" in page.headings
    assert set(CLASSES) <= {cell.strip() for cell in page.cells}
    elsewhere = tmp_path / "c.html"
    compare(*runs, "--json", "--report", str(elsewhere))
    assert elsewhere.read_bytes() == beside.read_bytes()
    beside.unlink()
    result = CliRunner().invoke(app, ["report", *runs])
    assert result.exit_code == 0, result.output
    assert beside.read_bytes() == elsewhere.read_bytes()


def test_a_card_belongs_to_one_run(runs: list[str], tmp_path: Path):
    (tmp_path / "card.toml").write_text('title = "x"')
    result = CliRunner().invoke(app, ["report", *runs, "--card", str(tmp_path / "card.toml")])
    assert result.exit_code == 1
    assert "a model card belongs to one run" in result.stderr


def test_json_holds_every_value(runs: list[str]):
    compared = json.loads(compare(*runs, "--metric", "bacc", "--json").stdout)
    average = [read_run(path).result["metrics"]["bacc"] for path in runs[:2]]
    group = compared["groups"][0]
    assert compared["metrics"] == ["bacc"]
    assert group["metrics"]["bacc"]["values"] == average
    assert group["seeds"] == [0, 1]
    assert set(group["classes"]) == set(CLASSES)


def test_picture_is_drawn(runs: list[str], tmp_path: Path):
    picture = tmp_path / "new folder" / "compared.png"
    result = compare(*runs, "--picture", str(picture))
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert str(picture) in result.stderr


def test_other_differences_are_noted(runs: list[str], tmp_path: Path):
    make_run(tmp_path / "short", "fedavg", rounds=1)
    result = compare(runs[2], str(tmp_path / "short"))
    assert "note: the runs differ in more than the method: rounds" in result.stderr
    assert "note" not in compare(*runs).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--metric", "macro_au"], "unknown metric 'macro_au'; did you mean 'macro_auc'?"),
        (["nowhere"], "there is no run folder nowhere"),
    ],
)
def test_mistakes_are_explained(runs: list[str], arguments: list[str], message: str):
    result = compare(*runs, *arguments)
    assert result.exit_code == 1
    assert message in result.stderr


def test_run_given_twice_is_refused(runs: list[str]):
    assert "given twice" in compare(runs[0], runs[0]).stderr


def test_a_pair_is_tested_in_words(runs: list[str]):
    compared = json.loads(compare(*runs, "--json").stdout)
    (test,) = compared["tests"]
    assert all(name in test["words"] for name in ("fedavg", "fedmlp"))
    printed = "".join(compare(*runs).stderr.split())
    assert "".join(test["words"].split()) in printed
    assert (test["seeds"], test["patients"], test["unit"]) == (1, 40, "image")
    assert set(test["classes"]) == set(CLASSES)


def test_runs_on_other_test_images_are_refused(runs: list[str], tmp_path: Path):
    other = make_run(
        tmp_path / "other",
        "fedmlp",
        data={"name": "digits-mosaic", "classes": 3, "train": 30, "test": 41},
    )
    result = compare(runs[0], str(other.path))
    assert result.exit_code == 1
    assert "tested on different data (40 and 41 images" in result.stderr


@pytest.mark.parametrize("form", ["csv", "markdown", "latex"])
def test_other_formats(runs: list[str], form: str):
    result = compare(*runs, "--format", form)
    assert result.exit_code == 0, result.output
    assert "fedavg" in result.stdout
    assert compare(*runs, "--format", form, "--json").exit_code == 1


def test_one_data_set_cannot_be_ranked(runs: list[str]):
    result = compare(*runs, "--across-data-sets")
    assert result.exit_code == 1
    assert "found 1 data set(s) and 2 method(s)" in result.stderr


def test_rounds_to_a_level_are_read_from_the_histories(runs: list[str]):
    histories = [read_run(path).history for path in runs]
    values = [[record["metrics"]["macro_auc"] for record in history] for history in histories]
    level = values[0][-1]  # the first run reaches it in its last round at the latest
    wanted = f"auc={level!r}"
    compared = json.loads(compare(*runs, "--rounds-to", wanted, "--json").stdout)["rounds_to"]
    expected = [
        next((number for number, value in enumerate(each, 1) if value >= level), None)
        for each in values
    ]
    assert compared["metric"] == "macro_auc"
    assert [group["rounds"] for group in compared["groups"]] == [expected[:2], expected[2:]]
    reached = expected[0] is not None and expected[1] is not None
    assert (compared["groups"][0]["median"] is not None) == reached
    assert "Rounds to" in compare(*runs, "--rounds-to", wanted).stdout


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("macro_au=0.7", "--rounds-to: unknown metric 'macro_au'; did you mean 'macro_auc'?"),
        ("map", "--rounds-to needs METRIC=LEVEL with a level in 0..1"),
        ("map=70", "--rounds-to needs METRIC=LEVEL with a level in 0..1"),
    ],
)
def test_mistakes_in_rounds_to_are_explained(runs: list[str], wanted: str, message: str):
    result = compare(*runs, "--rounds-to", wanted)
    assert result.exit_code == 1
    assert message in result.stderr
