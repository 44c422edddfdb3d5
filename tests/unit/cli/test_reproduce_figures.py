"""``fedquilt reproduce`` of figures and of tables of counts."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from support.published_stand_ins import few_canvases, write_stand_in
from typer.testing import CliRunner

from fedquilt.cli.main import app
from fedquilt.recipes.papers import find_table
from fedquilt.recipes.papers.displays import DISPLAYS
from fedquilt.runs.displayed_counts import beside, distance

TINY = ("--data", "digits", "--rounds", "1", "--workers", "1", "--set", "data.train=400")
TINY += ("--set", "data.test=80", "--set", "method.training.epochs=1")


def reproduce(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["reproduce", *arguments])


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("figures") / "out"


def drawn(name: str, out: Path) -> dict[str, Any]:
    short = name.partition("/")[2]
    assert (out / f"{short}.png").read_bytes().startswith(b"\x89PNG")
    found: dict[str, Any] = json.loads((out / f"{short}.json").read_text())
    assert found["display"] == name
    return found


def test_cosines_train_the_tables_cells_and_an_embedding_uses_them_again(
    out: Path, monkeypatch: pytest.MonkeyPatch
):
    cells = ("--cells", "fedavg,fednca-ml/beta-0.5")
    result = reproduce("fednca-ml/fig4", *TINY, *cells, "--out", str(out))
    assert result.exit_code == 0, result.output
    found = drawn("fednca-ml/fig4", out)["cosines"]
    assert [*found] == ["FedAvg, beta 0.5", "FedNCA-ML, beta 0.5"]
    for each in found.values():
        matrix = each["matrix"]
        assert [round(matrix[n][n], 6) for n in range(10)] == [1.0] * 10
        assert each["of_a_simplex"] == pytest.approx(-1 / 9)
        others = [matrix[a][b] for a in range(10) for b in range(10) if a != b]
        assert each["mean"] == pytest.approx(sum(others) / 90)
    monkeypatch.delattr("fedquilt.runs.reproduction.run_all")  # nothing is to be run
    result = reproduce("fednca-ml/fig3", *TINY, *cells, "--out", str(out))
    assert result.exit_code == 0, result.output
    found = drawn("fednca-ml/fig3", out)
    assert [*found["feature_per_class"].values()] == [False, True]
    for plane in found["planes"].values():
        assert len(plane["x"]) == len(plane["y"]) == len(plane["class"]) == len(plane["labels"])
        assert set(plane["labels"]) <= {1, 2, 3}
    result = reproduce("fednca-ml/fig5", *TINY, "--out", str(out), "--cells", "fednca-ml/beta-0.5")
    assert result.exit_code == 0, result.output
    assert all(len(labels) >= 2 for labels in drawn("fednca-ml/fig5", out)["labels"])
    result = reproduce("fednca-ml/fig5", *TINY, *cells, "--out", str(out))
    assert "attention maps show one run, found FedAvg, beta 0.5; FedNCA-ML" in result.stderr


def test_classes_are_drawn_by_their_annotators(tmp_path: Path):
    result = reproduce("fedmlp/fig1", *TINY, "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    points = drawn("fedmlp/fig1", tmp_path)["points"]
    assert len(points) == 4 * 5  # columns of the table, classes
    one_each = [point["annotators"] for point in points if "4 missing" in point["run"]]
    assert one_each == [1] * 5


def test_holdings_and_canvases_need_no_training(tmp_path: Path):
    folder = write_stand_in(tmp_path / "files", "cifar10", "fednca-ml")
    few = [word for setting in few_canvases("cifar10") for word in ("--set", setting)]
    common = ("--data", "cifar10", "--from", str(folder), "--out", str(tmp_path / "out"), *few)
    common += ("--set", "partition.smallest_client=1")
    assert reproduce("fednca-ml/fig9", *common).exit_code == 0
    columns = drawn("fednca-ml/fig9", tmp_path / "out")["columns"]
    assert [*columns] == ["beta 0.5", "beta 0.1"]
    for counts in columns.values():
        assert sum(map(sum, counts["positives"])) == 10 * 20 + 2 * 45 * 4 - 0
        assert all(0 < share <= 1 for share in counts["largest_share"].values())
    result = reproduce("fednca-ml/fig8", *common[:-2])
    assert result.exit_code == 0, result.output
    assert [len(each) for each in drawn("fednca-ml/fig8", tmp_path / "out")["labels"]] == (
        [1] * 8 + [2] * 8
    )
    assert not list(tmp_path.glob("out/cells/*"))


def test_counts_of_clients_are_laid_beside_the_papers(tmp_path: Path):
    folder = write_stand_in(tmp_path / "files", "chestxray14", "fedlsm")
    result = reproduce("fedlsm/table5", "--from", str(folder), "--out", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    found = drawn("fedlsm/table5", tmp_path / "out")
    assert found["distance"]["same_annotators"] == found["distance"]["entries"] == 24
    place = found["ours"]["classes"].index("Consolidation")
    assert [row[place] for row in found["paper"]] == [309, 0, 0, 0, 0, 0, 0, 297]
    assert "10,589 in the paper" in result.stdout
    with (tmp_path / "out" / "table5.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 24
    assert {line["published"] for line in lines if line["class"] == "Consolidation"} == {
        "309",
        "297",
    }
    assert sum(int(line["ours"]) for line in lines) == found["distance"]["total_ours"]
    refused = reproduce("fedlsm/table5", "--data", "digits", "--out", str(tmp_path / "out"))
    assert "has the paper's counts on chestxray14; there is nothing to compare" in refused.stderr


@pytest.mark.shared
def test_counts_on_nihs_labels_agree_with_the_papers(shared_folder: Path, tmp_path: Path):
    import gzip

    for name in ("Data_Entry_2017_v2020.csv", "train_val_list.txt", "test_list.txt"):
        packed = shared_folder / "data" / "nih_labels" / f"{name}.gz"
        (tmp_path / name).write_bytes(gzip.decompress(packed.read_bytes()))
    result = reproduce("fedlsm/table5", "--from", str(tmp_path), "--out", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    found = drawn("fedlsm/table5", tmp_path / "out")["distance"]
    assert found["same_annotators"] == 24
    assert abs(found["total_ours"] / found["total_paper"] - 1) < 0.03
    assert found["z"] < 1.3  # 24 entries: the square of z has a deviation of 0.29


def test_distance_of_two_tables_of_counts():
    # (9 - 16)^2 / 25 = 1.96 and (4 - 0)^2 / 4 = 4: root of the mean 2.98
    found = distance([[9, 0], [4, 0]], [[16, 0], [0, 0]])
    assert found == {
        "entries": 2,
        "same_annotators": 1,
        "total_ours": 13,
        "total_paper": 16,
        "z": 1.73,
    }
    counts = {"clients": ["c0"], "classes": ["Pleural_Thickening", "MEL"]}
    assert beside(counts, {"client A": {"Thickening": 5.0, "MEL": 2.0}}) == [[5.0, 2.0]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fednca-ml/fig13"], "unknown table or figure 'fednca-ml/fig13'; did you mean"),
        (["fednca-ml/fig4", "--seeds", "2"], "is drawn from one seed; leave out --seeds"),
        (["fednca-ml/fig9"], "needs --from FOLDER"),
    ],
)
def test_mistakes_are_explained(arguments: list[str], message: str, tmp_path: Path):
    result = reproduce(*arguments, "--out", str(tmp_path / "out"))
    assert result.exit_code == 1
    assert message in result.stderr


def test_every_display_names_cells_of_its_table():
    for display in DISPLAYS.values():
        for data in display.data():
            assert find_table(display.table, data).cells([display.cells])
