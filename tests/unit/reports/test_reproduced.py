"""A reproduced table from made-up results: numbers, ranks, table, CSV and picture."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from rich.console import Console
from support.html_pages import Page

from fedquilt.recipes.papers.criterion import AmongBest
from fedquilt.recipes.papers.published_numbers import AVERAGE, Reference
from fedquilt.recipes.papers.table import Cell, Column, DataChoice, Metric, PublishedTable, Row
from fedquilt.reports import reproduced_picture
from fedquilt.reports.reproduced import reproduced
from fedquilt.reports.reproduced_table import agreement_table, metric_table, write_reproduced

PAPER = """
bound 90.0 90.0
ours  80.0 70.0
good  70.0 60.0
weak  60.0 50.0
"""
MACHINE = {"device": "cpu", "cores": 2, "fedquilt": "1", "torch": "2", "python": "3"}


def made_up_table(columns: tuple[str, ...] = ("few", "many"), same_data: bool = True):
    values = {
        row: {column: {"bacc": float(value)} for column, value in zip(columns, numbers)}
        for row, *numbers in map(str.split, PAPER.strip().splitlines())
    }
    reference = Reference(label="Paper set", columns=columns, values=values, same_data=same_data)
    choice = DataChoice(
        name="made-up",
        about="",
        settings={},
        columns=tuple(Column(name=name, label=f"{name} left") for name in columns),
        references=(reference,),
        rounds=2,
    )
    kinds = {"bound": "bound", "ported": "variant"}
    rows = ("bound", "ours", "good", "weak", "ported")
    return PublishedTable(
        name="paper/table1",
        title="A table",
        choices={"made-up": choice},
        choice=choice,
        rounds=2,
        rows=tuple(
            Row(name=row, label=row.capitalize(), settings={}, kind=kinds.get(row, "rival"))  # type: ignore[arg-type]
            for row in rows
        ),
        metrics=(Metric(name="bacc", label="BACC"),),
        criterion=AmongBest(row="ours", metric="bacc", places=1),
        remarks=("a remark",),
    )


def made_up_runs(table: PublishedTable, shares: dict[str, tuple[float | None, ...]]) -> list[Any]:
    """Make runs from BACC by row: per column, one for seed 0 and one for 1; None has not run."""
    places = [(column, seed) for column in table.choice.columns for seed in (0, 1)]
    return [
        SimpleNamespace(
            cell=Cell(row, column),
            seed=seed,
            is_finished=share is not None,
            result={
                "metrics": {"bacc": share},
                "seconds": 10.0 + seed,
                "rounds": 2,
                "environment": MACHINE,
            },
        )
        for row in table.rows
        if row.name in shares
        for (column, seed), share in zip(places, shares[row.name])
    ]


SHARES = {
    "bound": (0.9, 0.9, 0.9, 0.9),
    "ours": (0.7, 0.8, 0.6, 0.7),
    "good": (0.5, 0.5, 0.6, 0.6),
    "weak": (0.6, 0.6, 0.5, None),
    "ported": (0.99, 0.99, None, None),
}


def summary_of(**changes: Any) -> dict[str, Any]:
    table = made_up_table(**changes)
    return reproduced(table, made_up_runs(table, SHARES))


def named(line: Line2D) -> bool:
    return str(line.get_label()) in ("Bound", "Ours", "Good", "Weak", "Ported")


def printed(table: Any) -> str:
    out = io.StringIO()
    Console(file=out, width=120).print(table)
    return out.getvalue()


def test_numbers_are_means_over_seeds_and_come_with_the_papers():
    rows = {row["row"]: row for row in summary_of()["rows"]}
    few = rows["ours"]["columns"]["few"]["bacc"]
    assert few["mean"] == pytest.approx(75.0)
    assert few["deviation"] == pytest.approx(7.0710678)  # sqrt(2 * 5 ** 2)
    assert (few["values"], few["published"]) == ([70.0, 80.0], {"Paper set": 80.0})
    average = rows["ours"]["columns"][AVERAGE]["bacc"]
    assert average["values"] == pytest.approx([65.0, 75.0])  # per seed
    assert average["published"] == {"Paper set": 75.0}
    assert rows["ours"]["seconds_per_run"] == 10.5
    assert rows["weak"]["columns"][AVERAGE]["bacc"]["values"] == pytest.approx([55.0])  # seed 0
    assert AVERAGE not in rows["ported"]["columns"]  # it ran in one column only


def test_the_criterion_ignores_bounds_and_variants():
    assert summary_of()["criterion"] == {
        "method": "Ours",
        "words": "Ours is the best by average BACC",
        "holds": True,
        # Weak has seed 0 only: 65 - 55. Against Good, with both seeds, 70 - 55.
        "found": (
            "Ours is number 1 of 3 with 70.0: +10.0 (one seed, so no interval) against the best "
            "other, Weak"
        ),
    }


def test_rank_agreement_is_over_rivals():
    agreement = {each["column"]: each for each in summary_of()["rank_agreement"]}
    # the paper has ours, good, weak; few: ours 75, weak 60, good 50, so the last two are swapped:
    # 1 - 6 * (0 + 1 + 1) / (3 * 8)
    assert agreement["few"]["spearman"] == pytest.approx(0.5)
    assert agreement["many"]["spearman"] == pytest.approx(1.0)  # 65, 60, 50
    # averages 70, 55 and, of seed 0, 55: good and weak share their ranks; 1.5 / sqrt(2 * 1.5)
    assert agreement[AVERAGE]["spearman"] == pytest.approx(0.866, abs=1e-4)
    assert {each["methods"] for each in agreement.values()} == {3}


def test_the_table_shows_the_papers_numbers_below_ours():
    text = printed(metric_table(summary_of(), "bacc"))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    place = lines.index("Ours 75.0±7.1 65.0±7.1 70.0±7.1 10")
    assert lines[place + 1] == "Paper set 80.0 70.0 75.0"
    assert "Ported 99.0±0.0 – – 10" in lines


def test_rank_agreement_is_shown_if_defined():
    shown = agreement_table(summary_of())
    assert shown is not None
    assert "Paper set BACC +0.50 +1.00 +0.87 3" in " ".join(printed(shown).split())
    table = made_up_table()
    few = reproduced(table, made_up_runs(table, {"ours": SHARES["ours"]}))
    assert agreement_table(few) is None
    assert few["criterion"]["holds"] is None


def test_files_hold_every_number(tmp_path: Path):
    write_reproduced(summary_of(), tmp_path, "fedquilt reproduce x", with_picture=True)
    with (tmp_path / "table.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    (line,) = (each for each in lines if (each["method"], each["column"]) == ("Ours", "few"))
    assert (line["ours"], line["deviation"], line["per_seed"]) == ("75.00", "7.07", "70.00 80.00")
    assert (line["published_Paper set"], line["seeds"], line["kind"]) == ("80.00", "0 1", "rival")
    made = {(each["method"], each["column"]): each for each in lines}
    weak = [made["Weak", column] for column in ("few", "many", AVERAGE)]
    assert [each["seeds"] for each in weak] == ["0 1", "0", "0"]
    assert [each["seconds_per_run"] for each in weak] == ["10.5", "10.0", "10.0"]
    assert (line["command"], line["hardware"]) == ("fedquilt reproduce x", "device cpu, cores 2")
    assert {path.name for path in tmp_path.iterdir()} == {
        *("table.json", "table.csv", "table.png", "report.html")
    }
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "75.0 ± 7.1Paper set: 80.0" in page.cells  # ours before the paper's
    assert "Ours is number 1 of 3 with 70.0: +10.0" in page.text
    assert "fedquilt reproduce x" in page.text
    assert [heading[1:] for heading in page.headings if heading[0].isdigit()] == [
        *("What was found", "Our numbers and the paper's", "For other patients and seeds"),
        *("Agreement with the paper's ranking", "Reproduce"),
    ]


def test_columns_that_ran_with_different_seeds_have_no_average(tmp_path: Path):
    table = made_up_table()
    summary = reproduced(table, made_up_runs(table, {"ours": (0.7, None, None, 0.8)}))
    assert list(summary["rows"][0]["columns"]) == ["few", "many"]
    write_reproduced(summary, tmp_path, "", with_picture=True)
    assert "average" not in (tmp_path / "table.csv").read_text(encoding="utf-8")


def test_nothing_is_written_before_a_run_is_finished(tmp_path: Path):
    write_reproduced(reproduced(made_up_table(), []), tmp_path, "", with_picture=True)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    drawn: list[Figure] = []
    monkeypatch.setattr(reproduced_picture, "save", lambda figure, path: drawn.append(figure))
    return drawn


def test_the_paper_is_drawn_only_for_the_same_data(figures: list[Figure], tmp_path: Path):
    for same_data in (True, False):
        reproduced_picture.save_reproduced_picture(summary_of(same_data=same_data), tmp_path)
    dashed = [
        [list(line.get_ydata()) for line in figure.axes[0].lines if line.get_linestyle() == "--"]
        for figure in figures
    ]
    assert [80.0, 70.0] in dashed[0]
    assert dashed[1] == []


def test_a_method_looks_the_same_in_every_picture(figures: list[Figure], tmp_path: Path):
    table = made_up_table()
    for shares in (SHARES, {"weak": SHARES["weak"]}):
        summary = reproduced(table, made_up_runs(table, shares))
        reproduced_picture.save_reproduced_picture(summary, tmp_path)
    looks = [
        [(line.get_color(), line.get_marker()) for line in figure.axes[0].lines if named(line)]
        for figure in figures
    ]
    assert looks[0][3] == looks[1][0]
    assert looks[0][0] != looks[1][0]


@pytest.mark.parametrize(("metrics", "shape"), [(1, (1, 1)), (3, (1, 3)), (4, (2, 2)), (5, (2, 3))])
def test_panels_are_in_rows_of_equal_length(
    metrics: int, shape: tuple[int, int], figures: list[Figure], tmp_path: Path
):
    summary = summary_of()
    names = {f"metric{number}": "a metric" for number in range(metrics)}
    reproduced_picture.save_reproduced_picture(summary | {"metrics": names}, tmp_path)
    grid = figures[0].axes[0].get_gridspec()
    assert (grid.nrows, grid.ncols) == shape


def test_picture_of_one_column_lists_the_methods(figures: list[Figure], tmp_path: Path):
    reproduced_picture.save_reproduced_picture(summary_of(columns=("few",)), tmp_path)
    (axes,) = figures[0].axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == [
        *("Bound", "Ours", "Good", "Weak", "Ported")
    ]
    hollow = [list(line.get_xdata()) for line in axes.lines if line.get_marker() == "D"]
    assert hollow == [[90.0, 80.0, 70.0, 60.0]]  # the variant has no published numbers
