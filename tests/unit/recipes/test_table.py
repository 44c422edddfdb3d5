"""PublishedTable: cells selected by patterns, and the settings of a cell."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedquilt.core.errors import UserError
from fedquilt.recipes.papers.criterion import AmongBest
from fedquilt.recipes.papers.published_numbers import AVERAGE, published
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


def test_a_reference_has_the_printed_numbers_and_averages_them_if_none_is_printed():
    read = published(
        "ICH",
        "fedmlp",
        "1",
        "rsna-ich",
        rows={"pl": "FedAvg-PL"},
        columns={"few": "missing 1", "many": "missing 3"},
        metrics={"bacc": "bacc"},
        same_data=True,
    )
    assert read.columns == ("few", "many")
    assert read.value("pl", "many", "bacc") == 63.40
    assert read.value("pl", AVERAGE, "bacc") == pytest.approx((80.52 + 63.40) / 2)
    assert read.value("pl", "few", "map") is None
    assert read.value("other", AVERAGE, "bacc") is None


def test_a_misspelt_printed_name_is_refused():
    names = {"rows": {"a": "FedAvgg"}, "columns": {"b": "missing 1"}, "metrics": {"c": "bacc"}}
    with pytest.raises(LookupError, match="'FedAvgg'"):
        published("ICH", "fedmlp", "1", "rsna-ich", **names, same_data=True)
    with pytest.raises(LookupError, match="no numbers of fedmlp, table 9"):
        published("ICH", "fedmlp", "9", "rsna-ich", **names, same_data=True)


def test_a_metric_of_one_class_is_the_mean_over_models_that_define_it():
    def report(auc: list[float | None]) -> dict[str, object]:
        return {"classes": ["a", "b"], "per_class": {"auc": auc}}

    metric = Metric(name="auc b", label="b", of_class="b")
    reports = {"one": report([0.1, 0.5]), "two": report([0.1, 0.7]), "three": report([0.1, None])}
    assert metric.read({"metrics": {}, "reports": reports}) == pytest.approx(0.6)
    assert metric.read({"metrics": {}, "reports": {"three": report([0.1, None])}}) is None
    assert Metric(name="bacc", label="BACC").read({"metrics": {"bacc": 0.4}}) == 0.4
