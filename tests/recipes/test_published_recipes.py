"""Every cell of every published table is a valid recipe; the papers' numbers are correct."""

from __future__ import annotations

import csv
import json
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.markdown_pages import ROOT, blocks, code_spans

from fedquilt.core.errors import UserError
from fedquilt.recipes.papers import TABLES, find_table
from fedquilt.recipes.papers.published_numbers import FILE
from fedquilt.recipes.papers.table import PublishedTable
from fedquilt.recipes.recipe import Recipe, read_recipe, recipe_from

CHOICES = [(name, data) for name in TABLES for data in find_table(name).choices]


def all_recipes(table: PublishedTable, folder: Path) -> dict[str, Recipe]:
    """Return the recipes of all cells, including variants, which do not run by default."""
    every_row = ",".join(row.name for row in table.rows)
    return {cell.name: table.recipe(cell, 3, folder) for cell in table.cells([every_row])}


def toml(settings: Mapping[str, Any]) -> str:
    """Write enough of TOML for a recipe: one value per line, nested tables inline."""

    def inline(value: Any) -> str:
        if isinstance(value, Mapping):
            return "{" + ", ".join(f"{key} = {inline(each)}" for key, each in value.items()) + "}"
        if isinstance(value, list | tuple):
            return "[" + ", ".join(map(inline, value)) + "]"
        return json.dumps(value)

    return "".join(f"{key} = {inline(value)}\n" for key, value in settings.items())


@pytest.mark.parametrize(("name", "data"), CHOICES)
def test_every_cell_is_a_recipe_that_survives_json_and_toml(name: str, data: str, tmp_path: Path):
    table = find_table(name, data)
    recipes = all_recipes(table, tmp_path)
    assert len(recipes) == len(table.rows) * len(table.choice.columns)
    assert len({recipe.hash for recipe in recipes.values()}) == len(recipes)  # no two are the same
    for recipe in recipes.values():
        assert recipe_from(json.loads(json.dumps(recipe.to_dict()))) == recipe
        assert (recipe.seed, recipe.rounds) == (3, table.rounds)
        hash(recipe.data)  # the key under which a process caches images
    cell = table.cells()[-1]
    file = tmp_path / "cell.toml"
    file.write_text(toml(table.settings(cell, 3, tmp_path)), encoding="utf-8")
    assert read_recipe(file) == recipes[cell.name]


@pytest.mark.parametrize(("name", "data"), CHOICES)
def test_all_published_numbers_belong_to_a_row(name: str, data: str):
    table = find_table(name, data)
    rows = {row.name for row in table.rows}
    for reference in table.choice.references:
        assert reference.values.keys() <= rows
        assert set(reference.columns) == {column.name for column in table.choice.columns}
    assert table.criterion.row in rows


def test_every_printed_number_of_a_table_with_runs_is_shown():
    """Nothing of the file is left out but the counts of positives at FedLSM's clients."""
    shown: dict[tuple[str, ...], int] = {}
    for name, data in CHOICES:
        for reference in find_table(name, data).choice.references:
            if reference.same_data:
                paper, _, table = name.partition("/table")
                count = sum(
                    len(metrics)
                    for row, columns in reference.values.items()
                    if row != "fednoro-ported"  # shares FedNoRo's numbers
                    for metrics in columns.values()
                )
                shown[paper, table, reference.label] = count
    with FILE.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    without_runs = {("fedlsm", "5"), ("fedlsm", "6")}
    expected = sum((line["paper"], line["table"]) not in without_runs for line in lines)
    assert (sum(shown.values()), len(lines)) == (expected, 1116)


def test_fedmlp_table_has_the_papers_nine_methods_and_four_levels():
    table = find_table("fedmlp/table1", "cifar10")
    names = {cell.row.name for cell in table.cells()}
    assert len(names - {"fednoro-ported"}) == 9  # FedNoRo is shown in two forms
    annotations = [column.settings["annotation"] for column in table.choice.columns]
    assert [each["missing"] for each in annotations] == [1, 4, 7, 9]
    assert [each["one_to_one"] for each in annotations] == [False, False, False, True]


def test_fewer_rounds_give_shorter_stages_and_larger_shares():
    def method(row: str, rounds: int, data: str = "ich") -> dict[str, Any]:
        table = find_table("fedmlp/table1", data, rounds)
        (settings,) = (each.settings for each in table.rows if each.name == row)
        return dict(settings["method"])

    paper, short = method("fedmlp", 500), method("fedmlp", 50)
    assert (paper["warmup_rounds"], short["warmup_rounds"]) == (50, 5)
    assert (paper["negative_share"], paper["positive_share"]) == (0.005, 0.01)
    assert short["negative_share"] == 0.0489  # 1 - 0.995 ** 10
    assert short["positive_share"] == 0.0956  # 1 - 0.99 ** 10
    assert (method("fednoro", 50)["ramp_start"], method("fednoro", 50)["ramp_end"]) == (1, 49)
    assert method("cbafed", 2)["warmup_rounds"] == 1
    at_hand = method("fedmlp", 24, "cifar10")  # 3/8 of the rounds
    assert (at_hand["warmup_rounds"], at_hand["positive_share"]) == (9, 0.03)


BLANKS_ARE_NEGATIVE = (
    *("full-labels", "fedavg", "fedavg-star", "fedprox-star", "moon-star", "fedrs"),
)


def test_starred_rows_average_head_rows_over_annotators(tmp_path: Path):
    recipes = all_recipes(find_table("fedlsm/table1", "chestxray14"), tmp_path)
    head_rows = {
        name.partition("/")[0]: recipe.to_dict()["method"]["head_rows"]
        for name, recipe in recipes.items()
    }
    assert {name for name, rule in head_rows.items() if rule == "annotated"} == {
        *("fedavg-star", "fedprox-star", "moon-star", "fixmatch-star", "fssl-star", "fpsl")
    }
    star, plain = (recipes[f"{name}/identified-3"].to_dict() for name in ("fedavg-star", "fedavg"))
    assert star["method"].pop("head_rows") == "annotated"
    assert plain["method"].pop("head_rows") == "all"
    assert star == plain  # blanks are negatives in both
    for name, recipe in recipes.items():
        method = recipe.to_dict()["method"]
        weight = (method["positive_weight"], method["positive_weight_cap"])
        assert (name, *weight) == (name, "odds", 100.0)  # one rule for class weights
        assert recipe.method.positive_weight_from == "population"
        expected = "negative" if name.partition("/")[0] in BLANKS_ARE_NEGATIVE else "skip"
        assert (name, method["unannotated"]) == (name, expected)


def test_fedlgts_harmonic_mean_is_ours():
    (reference,) = find_table("fedlgt/table1").choice.references
    cell = {name: reference.value("fedlgt", "all", name) for name in ("class_f1", "map")}
    assert cell == {"class_f1": 55.1, "map": 60.9}
    harmonic = 2 / (1 / 67.8 + 1 / 46.5)  # of the paper's C-P and C-R
    assert harmonic == pytest.approx(55.1, abs=0.1)


def test_fedlgts_users_and_its_bound_with_one_client(tmp_path: Path):
    recipes = all_recipes(find_table("fedlgt/table1"), tmp_path)
    usual, bound = recipes["fedlgt/all"], recipes["centralised-c-tran/all"]
    assert (usual.to_dict()["partition"]["name"], usual.cohort_size) == ("natural", 50)
    partition = bound.to_dict()["partition"]
    assert (partition["name"], partition["clients"], bound.cohort_size) == ("iid", 1, 1)
    assert bound.method.training.keep_optimizer
    assert bound.method.training.clip_norm == 10.0
    assert usual.to_dict()["method"]["text_encoder"] == "open-clip:ViT-B-16/openai"


def test_rows_of_fedmlp_are_the_papers_form(tmp_path: Path):
    recipes = all_recipes(find_table("fedmlp/table2"), tmp_path)
    method = recipes["fedmlp/missing-7"].to_dict()["method"]
    assert (method["normaliser"], method["prototype_weights"]) == ("classes", "clients")
    assert (method["difficulty_on"], method["missing_prior"]) == ("active", "client")
    assert "normaliser" not in recipes["fedmlp-repaired/missing-7"].to_dict()["method"]
    plain = recipes["fednoro-ported/missing-7"].to_dict()["method"]
    assert not plain["logit_adjustment"]
    assert recipes["fednoro/missing-7"].to_dict()["method"]["logit_adjustment"]
    assert {each.model.backbone for each in recipes.values()} == {"resnet18.tv_in1k"}


def test_fedmlps_ablation_adds_one_component_a_row(tmp_path: Path):
    recipes = all_recipes(find_table("fedmlp/table3", "digits"), tmp_path)
    switches = ("detection", "logit_adjustment", "consistency", "adaptive_threshold")
    found = {}
    for row in ("mld", "wpc", "cr", "st"):
        method = recipes[f"{row}/missing-4"].to_dict()["method"]
        found[row] = (method["unannotated"], *(method[switch] for switch in switches))
    assert found == {
        "mld": ("negative", True, False, False, False),
        "wpc": ("skip", True, True, False, False),
        "cr": ("skip", True, True, True, False),
        "st": ("skip", True, True, True, True),
    }


def test_fedlsms_ablation_leaves_one_component_out(tmp_path: Path):
    recipes = all_recipes(find_table("fedlsm/table3", "ham10000"), tmp_path)
    found = {}
    for name, recipe in recipes.items():
        method = recipe.to_dict()["method"]
        assert (method["labels"], method["thresholds"]) == ("single", [0.01, 0.95])
        found[name.partition("/")[0]] = (
            *(method["draw_counts"], method["mixing_strength"], method["entropy"]),
        )
    assert found == {
        "without-awpa": (False, 0.1, "binary"),
        "without-ude": (True, 0.0, "binary"),
        "without-ue": (True, 0.1, "random"),
        "fedlsm": (True, 0.1, "binary"),
    }


def test_fednca_mls_experiments_on_the_papers_images(tmp_path: Path):
    recipes = all_recipes(find_table("fednca-ml/table1"), tmp_path)
    for name, recipe in recipes.items():
        settings = recipe.to_dict()
        assert (settings["data"]["size"], settings["allocation_seed"]) == (224, 0)
        row = name.partition("/")[0]
        baselines = ("centralised", "fedavg", "fedcurv", "fedprox", "scaffold")
        assert (settings["model"]["head"] == "hidden-layer") == (row in baselines)
    small = all_recipes(find_table("fednca-ml/table1", "cifar10"), tmp_path)
    assert {each.model.head for each in small.values()} == {"linear"}


def test_rows_of_fednca_ml_weight_clients_equally(tmp_path: Path):
    for recipe in all_recipes(find_table("fednca-ml/table1", "cifar10"), tmp_path).values():
        method = recipe.to_dict()["method"]
        assert (method["weighting"], method["positive_weight"]) == ("uniform", "none")
        assert method["training"]["decay"] == "decoupled"


def test_the_guide_names_every_table_and_data_choice_and_its_example_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    spans = code_spans((ROOT / "docs" / "guides" / "reproduce.md").read_text(encoding="utf-8"))
    assert TABLES.keys() | {data for _, data in CHOICES} <= spans
    (program,) = blocks("docs/guides/reproduce.md", "python")
    (tmp_path / "example.py").write_text(program, encoding="utf-8")
    runpy.run_path(str(tmp_path / "example.py"))
    assert capsys.readouterr().out == "30\n"


def test_an_unknown_name_suggests_the_closest_one():
    with pytest.raises(UserError, match=r"unknown table 'fedmlp/tabel1'; did you mean 'fedmlp/ta"):
        find_table("fedmlp/tabel1")
    with pytest.raises(UserError, match=r"fedmlp/table1 has no data called 'cifar'; did you mean"):
        find_table("fedmlp/table1", "cifar")
