"""``fedquilt run`` on a folder with a site column: models are also evaluated per site."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from fedquilt.cli.main import app
from fedquilt.runs.finished_run import read_run

FOLDER = ("--data", "images", "--labels", "labels.csv")
SITES = ("--site-column", "hospital", "--split-column", "part")
QUICK = ("--size", "8", "--backbone", "small-cnn", "--grey", "--set", "views.weak=plain",
         "--set", "method.training.batch_size=8")  # fmt: skip


@pytest.fixture(autouse=True)
def own_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three sites with 8 training and 4 test images each; East does not annotate 'dark'.

    West has no bright test image.
    """
    monkeypatch.chdir(tmp_path)
    Path("images").mkdir()
    random = np.random.default_rng(0)
    with Path("labels.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "hospital", "part", "bright", "dark"])
        for site in ("East", "North", "West"):
            for number in range(12):
                part = "train" if number < 8 else "test"
                bright = 0 if (site, part) == ("West", "test") else number % 2
                pixels = random.integers(0, 100, (8, 8)) + 150 * bright
                name = f"{site}-{number}.png"
                Image.fromarray(pixels.astype(np.uint8)).save(Path("images") / name)
                dark = "" if site == "East" else str(number // 2 % 2)
                writer.writerow([name, site, part, str(bright), dark])


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["run", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def result_of(folder: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(Path(folder, "result.json").read_text())
    return result


def accuracy_by_hand(folder: str, site: str, client: str | None) -> float:
    """Return the share of a site's test images whose annotated labels are all predicted."""
    with Path("labels.csv").open(newline="") as file:
        table = [row for row in csv.DictReader(file) if row["part"] == "test"]
    own = [row for row in table if row["hospital"] == site]
    predicted = read_run(folder).predict([f"images/{row['image']}" for row in own], client=client)
    right = [
        all(row[name] in ("", str(int(present))) for name, present in zip(("bright", "dark"), each))
        for row, each in zip(own, predicted.present.tolist())
    ]
    return sum(right) / len(right)


def test_own_models_are_evaluated_on_all_test_images_and_on_their_sites():
    printed = run(*FOLDER, *SITES, "--method", "site-aware", "--rounds", "2", *QUICK,
                  "--out", "aware")  # fmt: skip
    assert "Own model on its own site's test images (%)" in printed
    result = result_of("aware")
    block = result["by_site"]
    assert block["model"] == "own"
    assert block["images"] == {"East": 4, "North": 4, "West": 4}
    for site, report in block["reports"].items():
        found = report["averages"]["subset_accuracy"]
        assert found == accuracy_by_hand("aware", site, client=site)
        assert result["reports"][site]["per_class"]["negatives"] == [8, 4]  # of all 12 images
    east, north, west = (block["reports"][site]["per_class"] for site in ("East", "North", "West"))
    assert (east["positives"], east["negatives"], east["auc"][1]) == ([2, 0], [2, 0], None)
    assert (north["positives"], north["negatives"]) == ([2, 2], [2, 2])
    assert (west["positives"], west["auc"][0]) == ([0, 2], None)
    assert block["client_count"]["macro_auc"] == 3
    values = [block["reports"][site]["averages"]["macro_auc"] for site in block["images"]]
    assert block["mean"]["macro_auc"] == pytest.approx(sum(values) / 3)


def test_global_model_is_evaluated_per_site():
    printed = run(*FOLDER, *SITES, "--method", "fedavg-pl", "--rounds", "1", *QUICK,
                  "--out", "average")  # fmt: skip
    assert "Global model on each site's test images (%)" in printed
    block = result_of("average")["by_site"]
    assert block["model"] == "global"
    for site, report in block["reports"].items():
        found = report["averages"]["subset_accuracy"]
        assert found == accuracy_by_hand("average", site, client=None)


def test_resumed_run_has_the_same_numbers_by_site():
    options = (*FOLDER, *SITES, "--method", "site-aware", "--rounds", "2", *QUICK)
    run(*options, "--out", "whole")
    run(*options, "--out", "again")
    Path("again/result.json").unlink()
    for path in Path("again/checkpoints").glob("round-000002.json"):
        path.unlink()
    run("--out", "again", "--resume")
    assert result_of("again")["by_site"] == result_of("whole")["by_site"]


def test_clients_that_are_not_sites_have_no_metrics_per_site():
    dealt = ("--clients", "2", "--ignore-columns", "hospital", "--split-column", "part")
    printed = run(*FOLDER, *dealt, "--method", "fedavg-pl", "--rounds", "1", *QUICK,
                  "--out", "dealt")  # fmt: skip
    assert "by_site" not in result_of("dealt")
    assert "each site's" not in printed
