"""Hub folder and MONAI bundle: what is in them, and that predict opens both."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support.model_folders import CLASSES, make_model_folder
from support.tiny_runs import make_run

from fedquilt.core.errors import UserError
from fedquilt.models.spec import ModelSpec
from fedquilt.runs.export.deployable import to_export
from fedquilt.runs.export.hub_folder import export_hub
from fedquilt.runs.export.monai_bundle import export_monai, inference
from fedquilt.runs.predictions import predict_files
from fedquilt.runs.trained_models import TrainedModels, open_models


@pytest.fixture
def models(tmp_path: Path) -> TrainedModels:
    return make_model_folder(tmp_path / "run", ModelSpec(), channels=3)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    draws = np.random.default_rng(0).integers(0, 256, (30, 20, 3), dtype=np.uint8)
    Image.fromarray(draws).save(tmp_path / "image.png")
    return tmp_path / "image.png"


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_hub_folder_predicts_as_the_run(models: TrainedModels, image: Path, tmp_path: Path):
    out = tmp_path / "hub"
    export_hub(models, None, out)
    assert files_of(out) == ["README.md", "config.json", "model.json", "model.safetensors"]
    (here,), (there,) = (predict_files(each, [image]) for each in (models, open_models(out)))
    assert here.prediction.rows() == there.prediction.rows()
    page = (out / "README.md").read_text("utf-8")
    assert page.startswith('---\nlicense: "other"\nlibrary_name: "fedquilt"\n')
    assert "not a medical device" in page
    assert models.hash_of(None) in page
    config = json.loads((out / "config.json").read_text("utf-8"))
    assert config["id2label"] == {str(place): name for place, name in enumerate(CLASSES)}


def test_the_page_of_a_run_is_its_model_card(models: TrainedModels, tmp_path: Path):
    (models.folder.path / "MODEL_CARD.md").write_text("# Of the study\n", encoding="utf-8")
    export_hub(models, None, tmp_path / "hub")
    page = (tmp_path / "hub" / "README.md").read_text("utf-8")
    assert page.split("---\n")[2].lstrip().startswith("# Of the study\n")


def test_one_clients_model_is_exported_under_no_name(tmp_path: Path):
    run = make_run(tmp_path / "local", "local-only")
    export_hub(run.models, "client-1", tmp_path / "hub")
    alone = open_models(tmp_path / "hub")
    images = torch.randint(0, 256, (3, *alone.image_shape), dtype=torch.uint8)
    assert torch.equal(alone.logits(images, None), run.models.logits(images, "client-1"))
    assert alone.card["annotated"]["global"] == run.models.card["annotated"]["client-1"]
    assert "client-" not in (tmp_path / "hub" / "model.json").read_text()
    with pytest.raises(UserError, match="choose one with client=NAME"):
        export_hub(run.models, None, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_an_existing_folder_is_left_alone(models: TrainedModels, tmp_path: Path):
    (tmp_path / "hub").mkdir()
    with pytest.raises(UserError, match="already exists; give another --out"):
        export_hub(models, None, tmp_path / "hub")


def test_a_bundle_holds_what_monai_requires(models: TrainedModels, image: Path, tmp_path: Path):
    out = tmp_path / "bundle"
    assert export_monai(models, None, out) < 1e-5
    assert files_of(out) == [
        *("LICENSE", "configs/inference.json", "configs/metadata.json", "docs/README.md"),
        *("model.json", "models/model.safetensors", "models/model.ts"),
    ]
    facts = json.loads((out / "configs" / "metadata.json").read_text("utf-8"))
    required = "version changelog monai_version pytorch_version numpy_version task description"
    assert {*required.split(), "authors", "copyright", "network_data_format"} <= facts.keys()
    pixels = facts["network_data_format"]["inputs"]["image"]
    assert (pixels["num_channels"], pixels["spatial_shape"]) == (3, [16, 16])
    (here,), (there,) = (predict_files(each, [image]) for each in (models, open_models(out)))
    assert here.prediction.rows() == there.prediction.rows()


def test_the_bundles_model_gives_predicts_numbers_without_fedquilt(
    models: TrainedModels, image: Path, tmp_path: Path
):
    """The config's expressions that need no MONAI, in a process without fedquilt."""
    export_monai(models, None, tmp_path / "bundle")
    config = inference(to_export(models, None))
    script = "\n".join(
        [
            *(line.removeprefix("$") for line in config["imports"]),
            "import sys, warnings",
            "sys.modules['fedquilt'] = None",
            "warnings.simplefilter('ignore')",
            f"network = torch.jit.load({str(tmp_path / 'bundle' / 'models' / 'model.ts')!r})",
            f"read = {config['read'].removeprefix('$')}",
            f"values = network(read({str(image)!r})[None])[1][0].tolist()",
            "csv.writer(sys.stdout).writerow(values)",
        ]
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    (values,) = csv.reader(done.stdout.splitlines())
    (batch,) = predict_files(models, [image])
    expected = batch.prediction.probabilities[0].tolist()
    assert [float(value) for value in values] == pytest.approx(expected, abs=1e-6)
