"""A run stores where its training images lie; prediction flags images that lie elsewhere."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor
from typer.testing import CliRunner

import fedquilt
from fedquilt.cli.main import app
from fedquilt.core.errors import UserError
from fedquilt.data.sources.given.load import Given
from fedquilt.runs.export.hub_folder import export_hub
from fedquilt.runs.finished_run import Run
from fedquilt.runs.trained_models import open_models
from fedquilt.runs.unlike_training import FEWEST, FILE

SIZE = 12


def pictures(count: int, seed: int, low: int = 60, high: int = 180) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(low, high, (count, 1, SIZE, SIZE), generator=draw, dtype=torch.uint8)


def data(count: int) -> Given:
    images = pictures(count, 0)
    labels = (images.float().mean((1, 2, 3)) > 119.5)[:, None]
    return fedquilt.from_arrays(images, labels, classes=["bright"])


def train(out: Path, count: int = 120, **settings: object) -> Run:
    recipe = {
        "data": data(count),
        "partition": {"name": "iid", "clients": 2},
        "annotation": {"name": "recorded"},
        "method": {"name": "fedavg-pl"},
        "rounds": 1,
        **settings,
    }
    return fedquilt.run(fedquilt.recipe_from(recipe), out)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tmp_path_factory.mktemp("unlike") / "run")


def flags(images: Tensor, path: Path) -> list[str | None]:
    rows = fedquilt.read_run(path).predict(images).rows()
    return [row["unlike_training"] for row in rows]


def test_similar_images_pass_and_others_are_flagged(run: Run):
    similar = flags(pictures(200, 1), run.path)
    assert 0 < similar.count("no") <= 200
    assert similar.count("no") > 180  # two limits of 99 %, fitted to 96 images
    assert "no" not in flags(pictures(20, 2, 0, 30), run.path)
    assert "no" not in flags(pictures(20, 3, 120, 121), run.path)  # one grey


def test_false_alarms_are_stated_and_those_of_the_test_images(run: Run):
    stated = json.loads((run.path / "model.json").read_text())["unlike_training"]["false_alarms"]
    assert stated == run.result["unlike_training"]["false_alarms"]
    found = flags(data(120).load(run.path).test.images, run.path)
    assert stated["images"] == len(found) == 24
    assert stated["flagged"] == len(found) - found.count("no")
    assert stated["low"] <= stated["share"] <= stated["high"]


def test_predict_says_so_on_screen_and_in_the_file(run: Run, tmp_path: Path):
    for name, image in (("usual.png", pictures(1, 4)), ("black.png", pictures(1, 5, 0, 1))):
        Image.fromarray(image[0, 0].numpy()).save(tmp_path / name)
    runner, names = CliRunner(), ("usual.png", "black.png")
    given = [str(run.path), *(str(tmp_path / name) for name in names)]
    shown = " ".join(runner.invoke(app, ["predict", *given]).output.split())
    assert shown.count("unlike the training images, by its") == 1
    assert "unlike the training images: 1 of 2 images; of the run's own test images" in shown
    out = tmp_path / "out.csv"
    runner.invoke(app, ["predict", *given, "--out", str(out)])
    with out.open(newline="", encoding="utf-8") as file:
        usual, black = (row["unlike_training"] for row in csv.DictReader(file))
    assert usual == "no"
    assert black in ("pixels", "features and pixels")


def test_an_exported_folder_flags_the_same(run: Run, tmp_path: Path):
    export_hub(open_models(run.path), None, tmp_path / "hub")
    images = torch.cat([pictures(5, 6), pictures(5, 7, 0, 20)])
    exported = open_models(tmp_path / "hub")
    there = exported.judged_by(exported.network(None), images, "cpu")[1]
    assert there == flags(images, run.path)


def test_too_few_images_or_models_of_clients_store_nothing(tmp_path: Path):
    few = train(tmp_path / "few", count=FEWEST)  # of which a fifth is for testing
    own = train(tmp_path / "own", method={"name": "local-only"})
    for each in (few, own):
        assert not (each.path / FILE).exists()
        assert "unlike_training" not in each.result
    assert flags(pictures(3, 1), few.path) == [None] * 3
    row = own.predict(pictures(1, 1), client=own.models.clients[0]).rows()[0]
    assert row["unlike_training"] is None


def test_a_damaged_file_is_named(run: Run, tmp_path: Path):
    copy = tmp_path / "copy"
    shutil.copytree(run.path, copy)
    tensors = load_file(copy / FILE)
    save_file({name: each for name, each in tensors.items() if "mean" not in name}, copy / FILE)
    with pytest.raises(UserError, match=r"unlike_training\.safetensors cannot be read"):
        flags(pictures(1, 1), copy)
    (copy / FILE).write_bytes(b"\0" * 20)
    with pytest.raises(UserError, match=r"unlike_training\.safetensors cannot be read"):
        flags(pictures(1, 1), copy)
