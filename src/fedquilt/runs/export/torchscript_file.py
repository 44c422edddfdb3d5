"""Write a model as TorchScript, for software that loads ``torch.jit`` files."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import torch
from torch import Tensor

from fedquilt.runs.export.comparison import Forward, export_checked
from fedquilt.runs.export.deployable import Exported

FACTS = "fedquilt.json"  # inside the file, among its extra files


def export_torchscript(exported: Exported, path: Path) -> float:
    """Write the file; return the largest difference to torch."""
    return export_checked(exported, path, "torchscript", lambda partial: _write(exported, partial))


def _write(exported: Exported, path: Path) -> Forward:
    with warnings.catch_warnings():
        # torch.jit is deprecated but still read everywhere. A batch size that tracing fixed is
        # found by the comparison, not by its warnings.
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(exported.module, exported.example(2), check_trace=False)
        torch.jit.save(traced, str(path), _extra_files={FACTS: json.dumps(exported.facts)})
        loaded = torch.jit.load(str(path))

    def forward(images: Tensor) -> list[Tensor]:
        with torch.no_grad():
            return list(loaded(images))

    return forward
