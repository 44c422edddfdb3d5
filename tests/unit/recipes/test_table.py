"""PublishedTable: cells selected by patterns, and the settings of a cell."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedquilt.core.errors import UserError
from fedquilt.recipes.papers.criterion import AmongBest
from fedquilt.recipes.papers.published_numbers import AVERAGE, read_reference
from fedquilt.recipes.papers.table import FOLDER, Column, DataChoice, Metric, PublishedTable, Row


def small_table(**data: str) -> PublishedTable:
    choice = DataChoice(
        name="made-up",
        about="a folder of made-up images",
        settings={
            "data": {"name": "folder", **data},
            "method": {"training": {"lr": 1.0, "epochs": 2}},
        },
        columns=(
            Column(name="few", label="few", settings={"partition": {"clients": 2}}),
            Column(name="many", label="many", settings={"partition": {"clients": 9}}),
        ),
        references=(),
        rounds=7,
    )
    rows = (
        Row(name="bound", label="Bound", settings={}, kind="bound"),
        Row(name="one", label="One", settings={"method": {"name": "m", "training": {"lr": 3.0}}}),
        Row(name="one-ported", label="One, as ported", settings={}, kind="variant"),
    )
    return PublishedTable(
        name="paper/table1",
        title="A table",
        choices={"made-up": choice, "other": choice},
        choice=choice,
        rounds=5,
        rows=rows,
        metrics=(Metric(name="bacc", label="BACC"),),
        criterion=AmongBest(row="one", metric="bacc"),
    )


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        ((), ["bound/few", "bound/many", "one/few", "one/many"]),
        (("one",), ["one/few", "one/many"]),
        (("/many",), ["bound/many", "one/many"]),
        (("One, bound/f*",), ["one/few", "bound/few"]),  # in the order of the pattern
        (("o*/few",), ["one/few"]),  # a variant has to be named in full
        (("one-ported/few", "one/many"), ["one-ported/few", "one/many"]),
        (("one/many", "one"), ["one/many", "one/few"]),
    ],
)
def test_patterns(patterns: tuple[str, ...], names: list[str]):
    assert [cell.name for cell in small_table().cells(patterns)] == names


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("bond", "no row is called 'bond'; did you mean 'bound'"),
        ("one/man", "no column is called 'man'; did you mean 'many'"),
    ],
)
def test_a_pattern_without_a_match_is_explained(pattern: str, message: str):
    with pytest.raises(UserError, match=message):
        small_table().cells([pattern])


def test_settings_are_merged_from_data_column_and_row():
    table = small_table()
    (cell,) = table.cells(["one/many"])
    assert table.settings(cell, 4) == {
        "rounds": 5,
        "seed": 4,
        "data": {"name": "folder"},
        "partition": {"clients": 9},
        "method": {"name": "m", "training": {"lr": 3.0, "epochs": 2}},
    }


def test_the_folder_is_inserted_and_required(tmp_path: Path):
    table = small_table(folder=f"{FOLDER}/images")
    cell = table.cells()[0]
    assert table.settings(cell, 0, tmp_path)["data"]["folder"] == f"{tmp_path}/images"
    with pytest.raises(UserError) as raised:
        table.settings(cell, 0)
    assert str(raised.value) == (
        "paper/table1 on made-up needs --from FOLDER: a folder of made-up images; "
        "other choices of --data: other"
    )


def test_a_reference_is_parsed_from_text():
    text = "one 50.0/60.0 70.0/90.0\ntwo 10.0/20.0 30.0/40.0\n"
    averages = "three 5.0/6.0"
    read = read_reference(
        "paper", text, ["few", "many"], ["bacc", "map"], same_data=True, averages=averages
    )
    assert read.value("one", "many", "map") == 90.0
    assert read.value("one", AVERAGE, "bacc") == 60.0  # of 50 and 70
    assert read.value("three", AVERAGE, "map") == 6.0
    assert read.value("three", "few", "map") is None
    assert read.value("four", AVERAGE, "map") is None


def test_text_with_a_missing_number_is_refused():
    with pytest.raises(ValueError, match="zip"):
        read_reference("paper", "one 50.0/60.0", ["few"], ["bacc"], same_data=True)
