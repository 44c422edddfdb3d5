"""ONNX and TorchScript files of every head: torch's numbers at any batch, and what they carry."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from support.model_folders import CLASSES, make_model_folder

from fedquilt.models.heads import HEADS
from fedquilt.models.spec import ModelSpec
from fedquilt.runs.export.deployable import to_export
from fedquilt.runs.export.onnx_file import export_onnx, runtime
from fedquilt.runs.export.torchscript_file import FACTS, export_torchscript

SETTINGS = {"scene-gcn": {"width": 16}, "c-tran": {"layers": 1}}


def spec_of(head: str) -> ModelSpec:
    # Only one network with batch norm: exporting it takes longer.
    backbone = "small-resnet" if head == "linear" else "small-cnn"
    mean, std = (0.2, 0.5, 0.7), (0.3, 0.4, 0.2)
    return ModelSpec(
        backbone=backbone, head=head, head_settings=SETTINGS.get(head, {}), mean=mean, std=std
    )


@pytest.mark.parametrize("head", HEADS)
def test_onnx_gives_torchs_logits(head: str, tmp_path: Path):
    """Black images too: pooled features of zeros are where one exporter returned NaN."""
    models = make_model_folder(tmp_path / "run", spec_of(head), channels=3)
    path = tmp_path / "model.onnx"
    assert export_onnx(to_export(models, None), path) < 1e-5
    images = torch.randint(0, 256, (7, 3, 16, 16), dtype=torch.uint8)
    images[0] = 0
    logit, probability = runtime(path)(images)
    torch.testing.assert_close(logit, models.logits(images, None), atol=1e-5, rtol=1e-5)
    assert torch.equal((probability >= 0.5), (logit >= 0))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["model.onnx", "run"]


@pytest.mark.parametrize("head", HEADS)
def test_torchscript_gives_torchs_logits(head: str, tmp_path: Path):
    models = make_model_folder(tmp_path / "run", spec_of(head), channels=3)
    path = tmp_path / "model.ts"
    assert export_torchscript(to_export(models, None), path) < 1e-5
    images = torch.randint(0, 256, (7, 3, 16, 16), dtype=torch.uint8)
    with pytest.warns(FutureWarning, match="torch.jit.load"):
        found = torch.jit.load(str(path))
    torch.testing.assert_close(found(images)[0], models.logits(images, None))


def test_the_onnx_file_holds_calibration_thresholds_and_classes(tmp_path: Path):
    import onnx

    stored = {
        "thresholds": {"rule": "fixed", "classes": {}},
        "calibration": {"classes": {CLASSES[1]: {"slope": 2.0, "intercept": -1.0}}},
        "annotated": {"global": list(CLASSES[:2])},
    }
    models = make_model_folder(tmp_path / "run", ModelSpec(), **stored)
    export_onnx(to_export(models, None), tmp_path / "model.onnx")
    images = torch.randint(0, 256, (2, 1, 16, 16), dtype=torch.uint8)
    logit, probability, calibrated = runtime(tmp_path / "model.onnx")(images)
    assert torch.equal(calibrated[:, [0, 2]], probability[:, [0, 2]])  # not calibrated
    by_hand = 1 / (1 + math.exp(-(2 * logit[0, 1].item() - 1)))
    assert calibrated[0, 1].item() == pytest.approx(by_hand, abs=1e-6)
    loaded = onnx.load(tmp_path / "model.onnx")
    facts = {entry.key: entry.value for entry in loaded.metadata_props}
    assert json.loads(facts["classes"]) == list(CLASSES)
    assert json.loads(facts["annotated"]) == list(CLASSES[:2])
    assert json.loads(facts["not_calibrated"]) == [CLASSES[0], CLASSES[2]]
    assert json.loads(facts["thresholds"]) == stored["thresholds"]
    assert json.loads(facts["decoding"])["size"] == 16
    assert facts["model"] == models.hash_of(None)


def test_torchscript_carries_the_same_facts(tmp_path: Path):
    models = make_model_folder(tmp_path / "run", ModelSpec())
    exported = to_export(models, None)
    export_torchscript(exported, tmp_path / "model.ts")
    extra = {FACTS: ""}
    with pytest.warns(FutureWarning, match="torch.jit.load"):
        torch.jit.load(str(tmp_path / "model.ts"), _extra_files=extra)
    assert json.loads(extra[FACTS]) == exported.facts
