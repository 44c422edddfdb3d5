"""Evaluations of a run's model on other people's data, kept beside the run for its report."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedquilt.core.atomic_files import write_json

EVALUATIONS = "evaluations"  # a folder in the run folder


def keep_evaluation(run: Path, data: Path, labels: Path, content: Mapping[str, Any]) -> Path:
    """Write ``evaluations/NAME.json``; an earlier one of the same folder and labels is replaced.

    The name is made of the last parts of both paths; where they lie is nobody's business.
    """
    name = "-".join([data.resolve().parent.name, data.resolve().name, labels.stem])
    path = run / EVALUATIONS / f"{re.sub(r'[^A-Za-z0-9._-]+', '_', name)}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"data": data.resolve().name, "labels": labels.name, **content})
    return path
