"""Each recipe of each paper allocates and trains one step; its settings are the paper's.

The files are small stand-ins in the published layouts (``support/published_stand_ins.py``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support import papers_rows
from support.papers_settings import EXPERIMENTS
from support.published_stand_ins import few_canvases, write_stand_in
from typer.testing import CliRunner

from fedquilt.cli.main import app
from fedquilt.data.allocation import allocate
from fedquilt.recipes.papers import TABLES, find_table
from fedquilt.recipes.papers.displays import DISPLAYS
from fedquilt.recipes.papers.table import Cell, PublishedTable
from fedquilt.reports.comparison import flat_settings
from fedquilt.runs.experiment import run

PAPERS_DATA = [
    (name, choice.name)
    for name in TABLES
    for choice in find_table(name).choices.values()
    if any(reference.same_data for reference in choice.references)
]
ALL_DATA = [(name, data) for name in TABLES for data in find_table(name).choices]
SLOW_TABLES = ("fedlgt/table1", "fedlgt/table2", "fedlgt/table4")
ROWS = [
    (name, data, row.name)
    for name, data in PAPERS_DATA
    if data not in ("cifar10", "cifar10-128")  # the same rows at other sizes
    for row in find_table(name, data).rows
]
OWN_METHODS = [  # FedLGT's transformer takes ten seconds: once is enough here
    place
    for place in ROWS
    if place[2] == find_table(place[0]).criterion.row and place[0] not in SLOW_TABLES
]
ONE_STEP = (
    *("rounds=1", "method.training.steps=1", "method.training.batch_size=8"),
    *("model.weights=random", "validation.share=0.0"),
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    root, written = tmp_path_factory.mktemp("stand-ins"), {}

    def folder(table: str, data: str) -> Path:
        key = f"{table.partition('/')[0]}-{data}" if data == "pascal-voc" else data
        if key not in written:
            written[key] = write_stand_in(root / key, data, table.partition("/")[0])
        return written[key]

    folder.cache = root / "cache"  # type: ignore[attr-defined]
    return folder


def test_figures_need_only_what_their_tables_need():
    listed = json.loads(CliRunner().invoke(app, ["list", "tables", "--json"]).stdout)
    assert sum(len(entry["published"]) for entry in listed) == 1116  # every number of the papers
    assert {entry["name"] for entry in listed} == {*TABLES, *DISPLAYS}
    for entry in listed:
        assert entry["data"]
        assert all(about for about in entry["data"].values())


def changes(table: PublishedTable, row: str, *, small: bool) -> list[str]:
    data = table.choice.name
    found = [*ONE_STEP, *few_canvases(data)]
    if data != "digits":
        found.append("data.size=32")
    if data == "ich":
        found.append("data.healthy=60")
    if "fedlgt" in row and table.name.startswith("fedlgt"):
        found.append('method.text_encoder="hashed-names"')
    if table.name.startswith("fedlgt") and row == "ule":
        found.append('method.text_encoder="hashed-names"')
    return [*found, "model.backbone=small-cnn", "model.small_stem=false"] if small else found


@pytest.mark.parametrize(("name", "data"), ALL_DATA)
def test_every_column_allocates(name: str, data: str, folders: Any):
    table = find_table(name, data)
    row = table.rows[-1]
    source, splits = None, None
    for column in table.choice.columns:
        recipe = table.recipe(
            Cell(row, column), 0, folders(name, data), changes(table, row.name, small=True)
        )
        if recipe.data != source:
            source, splits = recipe.data, recipe.data.load(folders.cache)
        assert splits is not None
        allocation = allocate(splits.train, recipe.partition, recipe.annotation, 0)
        clients = getattr(recipe.partition, "clients", None)
        assert clients is None or len(allocation.holdings) == clients
        assert bool(allocation.annotation_map().any(0).all())


@pytest.mark.parametrize(("name", "data", "row"), OWN_METHODS)
def test_the_papers_method_trains_a_step(
    name: str, data: str, row: str, folders: Any, tmp_path: Path
):
    train_a_step(name, data, row, folders, tmp_path, small=True)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "data", "row"), ROWS)
def test_every_row_trains_a_step_of_its_own_network(
    name: str, data: str, row: str, folders: Any, tmp_path: Path
):
    train_a_step(name, data, row, folders, tmp_path, small=False)


def train_a_step(name: str, data: str, row: str, folders: Any, out: Path, *, small: bool) -> None:
    table = find_table(name, data)
    wanted = next(each for each in table.rows if each.name == row)
    recipe = table.recipe(
        Cell(wanted, table.choice.columns[-1]),
        0,
        folders(name, data),
        changes(table, row, small=small),
    )
    result = json.loads(
        run(recipe, out / "run", cache=folders.cache).result.read_text(encoding="utf-8")
    )
    assert result["rounds"] == 1
    assert result["metrics"]["macro_auc"] is not None
    for metric in table.metrics:  # whatever the table prints can be read
        metric.read(result)


def test_without_awpa_no_update_is_refused_for_its_weight(folders: Any, tmp_path: Path):
    """Head rows then weigh as the body does: by images, also where fewer of them are drawn."""
    train_a_step("fedlsm/table3", "ham10000", "without-awpa", folders, tmp_path, small=True)


def test_every_table_has_a_list_of_settings():
    assert {name for name, *_ in EXPERIMENTS} == TABLES.keys()
    on_papers_data = {place for place in PAPERS_DATA if place[1] not in ("cifar10", "cifar10-128")}
    assert papers_rows.ROWS.keys() == on_papers_data


@pytest.mark.parametrize("place", EXPERIMENTS, ids="-".join)
def test_settings_are_the_papers(place: tuple[str, str, str, str], tmp_path: Path):
    name, data, row, column = place
    table = find_table(name, data)
    (cell,) = table.cells([f"{row}/{column}"])
    recipe = table.recipe(cell, 0, tmp_path)
    found = flat_settings(with_defaults(recipe.to_dict(), recipe))
    expected = EXPERIMENTS[place]
    assert {setting: found[setting] for setting in expected} == expected


@pytest.mark.parametrize(("name", "data"), papers_rows.ROWS, ids="-".join)
def test_every_row_on_the_papers_data_has_a_list_of_settings(name: str, data: str):
    table = find_table(name, data)
    assert {row.name for row in table.rows} == papers_rows.ROWS[name, data][1].keys()


@pytest.mark.parametrize(("name", "data", "row"), tuple(papers_rows.every_cell()), ids="-".join)
def test_every_cell_has_the_papers_settings(name: str, data: str, row: str, tmp_path: Path):
    table = find_table(name, data)
    for cell in table.cells([row]):
        recipe = table.recipe(cell, 0, tmp_path)
        found = flat_settings(with_defaults(recipe.to_dict(), recipe))
        expected = papers_rows.expected(name, data, row, cell.column.name)
        assert {setting: found.get(setting) for setting in expected} == expected, cell.name


def with_defaults(settings: dict[str, Any], recipe: Any) -> Mapping[str, Any]:
    """Add settings that are not written because they are at their default."""
    parts = {
        name: {**vars(getattr(recipe, name)), **settings.get(name, {})}
        for name in ("method", "validation", "evaluation")
    }
    return {**settings, **parts}
