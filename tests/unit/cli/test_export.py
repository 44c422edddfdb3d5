"""``fedquilt export``."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.model_folders import make_model_folder
from typer.testing import CliRunner

from fedquilt.cli.main import app
from fedquilt.models.spec import ModelSpec


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_model_folder(tmp_path / "run", ModelSpec()).folder.path


def export(run: Path, kind: str, out: Path):
    return CliRunner().invoke(app, ["export", str(run), "--format", kind, "--out", str(out)])


@pytest.mark.parametrize(("kind", "name"), [("torchscript", "model.ts"), ("monai", "bundle")])
def test_the_difference_to_torch_is_printed(kind: str, name: str, run: Path, tmp_path: Path):
    result = export(run, kind, tmp_path / name)
    assert result.exit_code == 0, result.stderr
    assert "largest difference to torch: 0, at batches of 1, 2, 5" in result.stderr
    assert f"written: {tmp_path / name}" in result.stderr
    assert "weights can leak training data" in result.stderr


def test_a_hub_folder_says_how_it_is_used(run: Path, tmp_path: Path):
    result = export(run, "hf", tmp_path / "hub")
    assert f"use it: fedquilt predict {tmp_path / 'hub'} IMAGE..." in result.stderr
    assert "largest difference" not in result.stderr  # nothing was converted


def test_nothing_is_overwritten(run: Path, tmp_path: Path):
    (tmp_path / "model.onnx").write_text("mine")
    result = export(run, "onnx", tmp_path / "model.onnx")
    assert result.exit_code == 1
    assert "already exists" in result.stderr
    assert (tmp_path / "model.onnx").read_text() == "mine"


def test_an_unknown_format_is_refused(run: Path, tmp_path: Path):
    result = export(run, "pickle", tmp_path / "model.pt")
    assert result.exit_code == 2
    assert "onnx" in result.stderr
