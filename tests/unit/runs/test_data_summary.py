"""What a finished run keeps of its data for its report, counted by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.tiny_runs import tiny_settings
from torch import Tensor

from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.data.source import Splits
from fedquilt.recipes.recipe import recipe_from
from fedquilt.reports.run_with_report import run as run_recipe
from fedquilt.runs import data_summary
from fedquilt.runs.data_summary import DATA_FILE, SITE_COUNTS, write_data_facts
from fedquilt.runs.simulation import simulate

BLANK = 9
RECORDED = {"name": "recorded"}
# Two sites of three images; the second annotates the first class only.
TRAIN = torch.tensor([[1, 0], [0, 1], [1, 1], [1, BLANK], [0, BLANK], [0, BLANK]])
TEST = torch.tensor([[1, 0], [0, BLANK]])


def dataset(cells: Tensor, patients: tuple[str, ...] | None, sites: str) -> MultiLabelDataset:
    known = cells != BLANK
    return MultiLabelDataset(
        images=torch.zeros(len(cells), 1, 16, 16, dtype=torch.uint8),
        labels=torch.where(known, cells, 0).to(torch.uint8),
        known=known,
        classes=("edema", "mass"),
        ids=tuple(f"{sites}-{row}" for row in range(len(cells))),
        groups=patients,
        sites=tuple(sites),
    )


@pytest.fixture
def facts(request: pytest.FixtureRequest, tmp_path: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "partition": {"name": "natural", "by": "site"},
        "annotation": {"name": "recorded"},
        **getattr(request, "param", {}),
    }
    return written_facts(tmp_path, settings)


def written_facts(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    recipe = recipe_from(tiny_settings("fedavg-pl", **settings))
    splits = Splits(
        train=dataset(TRAIN, ("p", "p", "q", "r", "s", "t"), "nnnsss"),
        test=dataset(TEST, ("u", "t"), "ns"),
    )
    write_data_facts(folder, recipe, simulate(recipe, folder, splits))
    found: dict[str, Any] = json.loads((folder / DATA_FILE).read_text(encoding="utf-8"))
    return found


def test_splits_are_counted_by_image_and_patient(facts: dict[str, Any]):
    assert facts["splits"] == {
        "train": {"images": 6, "patients": 5, "annotated": [6, 3], "positives": [3, 2]},
        "test": {"images": 2, "patients": 2, "annotated": [2, 1], "positives": [1, 0]},
    }
    assert facts["patients_in_both"] == 1  # patient t


def test_a_part_of_a_published_data_set_is_said_everywhere(tmp_path: Path):
    recipe = recipe_from(
        tiny_settings("fedavg-pl", partition={"name": "natural", "by": "site"}, annotation=RECORDED)
    )
    whole = Splits(train=dataset(TRAIN, None, "nnnsss"), test=dataset(TEST, None, "ns"))
    for missing in (0, 3):
        out = tmp_path / str(missing)
        run = run_recipe(recipe, out, splits=replace(whole, missing_images=missing))
        facts = json.loads((out / DATA_FILE).read_text(encoding="utf-8"))
        page = (out / "report.html").read_text(encoding="utf-8")
        assert run.result.get("missing_images", 0) == facts.get("missing_images", 0) == missing
        assert ("3 images of it were left out" in page) == bool(missing)


@pytest.mark.parametrize("facts", [{"validation": {"share": 0.4}}], indirect=True)
def test_validation_is_a_part_of_its_own(facts: dict[str, Any]):
    train, validation = facts["splits"]["train"], facts["splits"]["validation"]
    assert validation["images"] > 0
    assert train["images"] + validation["images"] == 6
    assert train["patients"] + validation["patients"] == 5
    assert train["annotated"][0] + validation["annotated"][0] == 6
    assert sum(site["images"] for site in facts["sites"]) == train["images"]


def test_sites_are_counted(facts: dict[str, Any]):
    assert facts["sites"] == [
        {"name": "n", "images": 3, "patients": 2, "annotated": [3, 3], "positives": [2, 2]},
        {"name": "s", "images": 3, "patients": 3, "annotated": [3, 0], "positives": [1, 0]},
    ]


def test_counts_of_many_sites_and_classes_are_a_table_beside_the_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    settings = {"partition": {"name": "natural", "by": "site"}, "annotation": RECORDED}
    before = written_facts(tmp_path, settings)
    assert not (tmp_path / SITE_COUNTS).exists()
    monkeypatch.setattr(data_summary, "MAX_CELLS", 3)
    after = written_facts(tmp_path, settings)
    assert after["sites"] == [
        {"name": "n", "images": 3, "patients": 2},
        {"name": "s", "images": 3, "patients": 3},
    ]
    assert after | {"sites": before["sites"]} == before
    with np.load(tmp_path / SITE_COUNTS, allow_pickle=False) as table:
        assert table["sites"].tolist() == ["n", "s"]
        assert table["classes"].tolist() == ["edema", "mass"]
        assert table["annotated"].tolist() == [[3, 3], [3, 0]]
        assert table["positives"].tolist() == [[2, 2], [1, 0]]


def test_parts_of_a_message_are_listed_once(facts: dict[str, Any]):
    leaving = facts["leaving"]
    assert {part["part"] for part in leaving["parts"]} >= {"annotators", "body", "head"}
    assert (leaving["clients"], leaving["listed"], leaving["suppressed"]) == (2, 1, {})


@pytest.mark.parametrize("facts", [{"validation": {"share": 0.4}}], indirect=True)
def test_what_is_said_of_validation_images_is_listed(facts: dict[str, Any]):
    when = {part["part"]: part["when"] for part in facts["leaving"]["parts"]}
    assert when["validation_auc"] == when["validation_loss"] == "validated rounds"
    numbers = [part["numbers"] for part in facts["leaving"]["parts"] if "valid" in part["part"]]
    assert numbers == [2, 2]  # one per class


@pytest.mark.parametrize("facts", [{"min_cell": 4}], indirect=True)
def test_a_site_below_the_floor_is_named(facts: dict[str, Any]):
    leaving = facts["leaving"]
    assert leaving["listed"] == 2
    assert set(leaving["silent"]) == {"n", "s"}  # 2 and 3 patients
