"""``fedquilt run`` with every method, where it can learn digits within seconds: does it?"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from typer.testing import CliRunner

from fedquilt.cli.main import app
from fedquilt.methods import METHODS

# Three clients, each of which annotates two of four digits.
COMMON = (
    "data.classes=4",
    "data.digits_per_image=[2, 2]",  # one number, or telling how many there are would beat chance
    "data.train=288",  # three full batches a client
    "data.test=300",
    "partition.clients=3",
    "annotation.missing=2",
    "annotation.one_to_one=false",
    "model.backbone=small-resnet",  # heads that attend to places need far longer on small-cnn
    "views.strong={horizontal_flip = 0.0, degrees = 10.0, translate = 0.05}",  # never mirrored
    "method.training.epochs=1",
    "rounds=6",
    "evaluation.every=100",  # the last round is evaluated anyway
    "checkpoint_every=100",  # likewise
    "seed=7",
)
EVERYTHING_ANNOTATED = 'annotation={name = "full"}'
POSITIVES_ONLY = (
    # A client has one class and no negatives; one that trains for longer turns all features to its
    # class, and batch norm tells it nothing of others.
    'partition={name = "positive-only", images = "replicate"}',
    EVERYTHING_ANNOTATED,
    "data.classes=5",  # of fewer, any two are together so often that FedALC hardly parts them
    "model.backbone=small-cnn",
    "method.training.optimizer=sgd",
    "method.training.lr=0.2",
    "method.training.steps=1",
    "rounds=60",
)
EXCEPTIONS: dict[str, tuple[str, ...]] = {
    # Alone, a client learns nothing of what it does not annotate.
    "local-only": (EVERYTHING_ANNOTATED,),
    # Made for positives only.
    "fedaws": POSITIVES_ONLY,
    "fedalc": POSITIVES_ONLY,
    # Warm-ups and ramps are as long as the papers' runs.
    "fedmlp": (
        "rounds=9",
        "method.warmup_rounds=3",
        "method.warmup_views=1",  # plain views do not vary
        "method.negative_share=0.03",  # the default is less than one label of so few images
        "method.positive_share=0.03",
        "method.rounding=ceil",
    ),
    "cbafed": ("rounds=9", "method.warmup_rounds=3"),
    "fedirm": ("rounds=9", "method.warmup_rounds=3", "method.ramp_rounds=0"),
    "fssl": ("method.ramp_rounds=0",),
    "fedlsr": ("method.ramp_rounds=0",),
    "fednoro": ("method.ramp_start=0", "method.ramp_end=0"),
    # As good as the default widths, 1024 and 512, and far faster.
    "scene-gcn": ("method.width=64",),
    "site-aware": ("method.width=64",),
}
GOOD_AUC = 0.75  # an untrained network has 0.45 to 0.55
# Its head is computed in closed form: that of an untrained backbone has 0.82.
HIGHER = {"spherefed": 0.9}


def run(name: str, folder: Path, *changes: str) -> tuple[list[float], dict[str, Any]]:
    """The training loss of every round, and the result."""
    settings = [f"method.name={name}", *COMMON, *EXCEPTIONS.get(name, ()), *changes]
    options = [part for setting in settings for part in ("--set", setting)]
    finished = CliRunner().invoke(app, ["run", "digits-fedavg", "--out", str(folder), *options])
    assert finished.exit_code == 0, finished.output
    history = (folder / "history.jsonl").read_text().splitlines()
    losses = [json.loads(line)["loss"] for line in history]
    return losses, json.loads((folder / "result.json").read_text())


@pytest.mark.parametrize("name", METHODS)
def test_loss_falls_and_result_beats_chance(name: str, tmp_path: Path) -> None:
    losses, result = run(name, tmp_path / "run")
    third = len(losses) // 3
    assert result["method"] == name
    assert fmean(losses[-third:]) < fmean(losses[:third])
    assert result["metrics"]["macro_auc"] > HIGHER.get(name, GOOD_AUC)


@pytest.mark.parametrize(
    "name",
    ["fedavg-pl", "moon", "fedaws", "fednca-ml", "fedc-tran", "fedlgt", "scene-gcn", "site-aware"],
)
def test_without_learning_it_is_chance(name: str, tmp_path: Path) -> None:
    """Else the test above would say nothing; one method for each kind of network."""
    _, result = run(name, tmp_path / "run", "rounds=1", "method.training.lr=1e-9")
    assert result["metrics"]["macro_auc"] < 0.65
