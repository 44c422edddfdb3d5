"""``fedquilt run --data``: a user's own images without a recipe."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from fedquilt.cli.main import app
from fedquilt.runs.finished_run import read_run

EVEN_SPLIT = ("--clients", "2", "--ignore-columns", "hospital, person")
QUICK = ("--rounds", "2", "--size", "8", "--backbone", "small-cnn", "--grey")


@pytest.fixture(autouse=True)
def own_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """24 grey images of two sites; each site annotates one of two findings."""
    monkeypatch.chdir(tmp_path)
    Path("images").mkdir()
    random = np.random.default_rng(0)
    with Path("labels.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "hospital", "person", "bright", "dark"])
        for number in range(24):
            site, finding = number % 2, number // 2 % 2
            pixels = random.integers(0, 100, (12, 12)) + 150 * finding
            name = f"{number}.png"
            Image.fromarray(pixels.astype(np.uint8)).save(Path("images") / name)
            cells = [str(finding), ""] if site == 0 else ["", str(1 - finding)]
            writer.writerow([name, f"site {site}", f"person {number}", *cells])


def run(*arguments: str):
    return CliRunner().invoke(
        app, ["run", "--data", "images", "--labels", "labels.csv", *arguments]
    )


def test_sites_are_the_clients():
    result = run("--sites-column", "hospital", "--patient-column", "person", *QUICK)
    assert result.exit_code == 0, result.output
    assert "for 2 clients with 10 images and 2 rounds, fedmlp uses warmup_rounds = 1 (50), " in (
        result.stderr
    )
    assert "rounding = 'ceil' ('floor')" in result.stderr
    done = read_run("runs/fedmlp-0")
    assert done.annotators == {"bright": ["site 0"], "dark": ["site 1"]}
    assert (done.recipe.method.warmup_rounds, done.recipe.method.rounding) == (1, "ceil")
    assert Path(done.recipe.data.folder).is_absolute()
    assert done.models.image_shape == (1, 8, 8)


def test_images_can_be_split_evenly():
    chosen = ("--method", "fedavg-pl", "--set", "method.training.lr=0.01")
    result = run(*EVEN_SPLIT, *chosen, *QUICK, "--out", "dealt")
    assert result.exit_code == 0, result.output
    done = read_run("dealt")
    assert len(done.allocation.holdings) == 2
    assert done.recipe.method.training.lr == 0.01
    # 24 images, a fifth of them for testing: nobody else is left out.
    assert sum(len(holding.indices) for holding in done.allocation.holdings) in (19, 20)


def test_given_warmup_is_kept():
    run("--site-column", "hospital", "--patient-column", "person", *QUICK, "--out", "kept",
        "--set", "method.warmup_rounds=2")  # fmt: skip
    assert read_run("kept").recipe.method.warmup_rounds == 2


def test_derived_settings_let_fedmlp_fill_in_labels():
    """With the published shares, 1 % of 10 images is rounded down to no label in any round."""
    columns = ("--site-column", "hospital", "--patient-column", "person")
    learning = ("--set", "method.training.lr=0.01", "--set", "views.weak=plain")
    options = (*columns, *QUICK, *learning, "--rounds", "6")
    published = (
        "method.rounding=floor",
        "method.negative_share=0.005",
        "method.positive_share=0.01",
    )
    changes = [word for setting in published for word in ("--set", setting)]
    assert "0 labels filled in: 0.01 of" in run(*options, *changes, "--out", "published").stdout
    suited = run(*options, "--out", "suited")
    assert "0 labels filled in" not in suited.stdout
    assert read_run("suited").result["activity"]["labels filled in"] > 0


def test_settings_of_a_variant_are_kept():
    columns = ("--site-column", "hospital", "--patient-column", "person")
    result = run(*columns, *QUICK, "--set", "method.variant=supplement", "--method", "cbafed",
                 "--out", "variant")  # fmt: skip
    assert "cbafed uses warmup_rounds = 1 (50); in" in result.stderr
    assert read_run("variant").recipe.method.threshold_base == 0.6


def test_model_is_evaluated_and_predicts_other_images():
    run("--site-column", "hospital", "--patient-column", "person", *QUICK, "--out", "done")
    evaluated = CliRunner().invoke(
        app,
        ["evaluate", "done", "--data", "images", "--labels", "labels.csv",
         "--ignore-columns", "hospital,person,"],
    )  # fmt: skip
    assert evaluated.exit_code == 0, evaluated.output
    trained = sum(len(holding.indices) for holding in read_run("done").allocation.holdings)
    assert f"{24 - trained} images" in evaluated.stdout
    assert f"THE MODEL WAS TRAINED ON {trained} OF THESE IMAGES" in evaluated.stderr
    asked = CliRunner().invoke(app, ["predict", "done", "images/3.png"])
    assert asked.exit_code == 0, asked.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no clients are given"),
        (("--clients", "2", "--site-column", "hospital"), "not both"),
        (("--clients", "2"), "columns that are neither a class nor used otherwise"),
        (("--clients", "2", "--method", "fedpro"), "did you mean 'fedprox'?"),
        ((*EVEN_SPLIT, "--method", "FedMPL"), "did you mean 'fedmlp'?"),
        ((*EVEN_SPLIT, "--weights", "nowhere.safetensors"), "no weights file at"),
    ],
)
def test_mistakes_are_explained(arguments: tuple[str, ...], message: str):
    result = run(*arguments)
    assert result.exit_code == 1
    assert message in result.stderr


def test_labels_are_needed():
    result = CliRunner().invoke(app, ["run", "--data", "images", "--clients", "2"])
    assert result.exit_code == 1
    assert "--labels" in result.stderr
