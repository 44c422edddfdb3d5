"""Checks of metric reports."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from fedquilt.metrics import Report, score


def close(*values: float) -> object:
    return pytest.approx(values[0] if len(values) == 1 else values, abs=1e-6, nan_ok=True)


def score_all(probabilities: Tensor, labels: Tensor, **options: Any) -> Report:
    known = torch.ones_like(labels, dtype=torch.bool)
    names = tuple(f"class {column}" for column in range(labels.shape[1]))
    return score(probabilities, labels, known, names, **options)


def check_averages(report: Report, **expected: float) -> None:
    for name, value in expected.items():
        assert report.averages[name] == close(value), name
