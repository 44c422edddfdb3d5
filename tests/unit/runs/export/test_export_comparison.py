"""An exported file that differs from torch is refused and does not remain."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.model_folders import make_model_folder
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.models.spec import ModelSpec
from fedquilt.runs.export.comparison import export_checked, largest_difference
from fedquilt.runs.export.deployable import Exported, to_export


@pytest.fixture
def exported(tmp_path: Path) -> Exported:
    return to_export(make_model_folder(tmp_path / "run", ModelSpec()), None)


def outputs(exported: Exported, images: Tensor) -> list[Tensor]:
    with torch.no_grad():
        return list(exported.module(images))


def test_the_largest_difference_of_all_outputs_and_batches_is_returned(exported: Exported):
    def shifted(images: Tensor) -> list[Tensor]:
        logit, probability = outputs(exported, images)
        return [logit, probability + (4e-6 if len(images) == 2 else 1e-6)]

    assert largest_difference(exported, shifted) == pytest.approx(4e-6, rel=0.05)
    assert largest_difference(exported, lambda images: outputs(exported, images)) == 0.0


def fixed_batch(found: list[Tensor]) -> list[Tensor]:
    return [each[:2] for each in found]


def far(found: list[Tensor]) -> list[Tensor]:
    return [found[0] + 1e-4, found[1]]


def undefined(found: list[Tensor]) -> list[Tensor]:
    return [found[0] * torch.nan, found[1]]


def failing(found: list[Tensor]) -> list[Tensor]:
    raise RuntimeError("Got invalid dimensions\nand a long trace")


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (fixed_batch, r"logit of shape \(2, 3\) on a batch of 5, expected \(5, 3\)"),
        (far, "differs from torch by 0.0001 on a batch of 1"),
        (undefined, "differs from torch by nan"),
        (failing, "fails on a batch of 1: Got invalid dimensions;"),
    ],
)
def test_a_file_that_cannot_be_trusted_is_refused(
    break_it, message: str, exported: Exported, tmp_path: Path
):
    def write(path: Path):
        path.write_text("a model")
        return lambda images: break_it(outputs(exported, images))

    with pytest.raises(UserError, match=f"head 'linear' cannot be exported to onnx: .*{message}"):
        export_checked(exported, tmp_path / "model.onnx", "onnx", write)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
