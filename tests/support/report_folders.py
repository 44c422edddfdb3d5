"""Run folders written by hand, for tests and benchmarks of reports: any names, any size."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from fedquilt.data.allocation import Allocation, Holding

HOSTILE = (
    "<script>window.pwned=1</script>",
    '"><img src=http://example.invalid onerror="window.pwned=1">',
    "\x1b[31mred",
    "{{7*7}}",
    "$x$",
    "\u202eevil",
    "long " * 60,
    "",
)
SITES = ("north", "south")


def write_run_folder(
    folder: Path,
    classes: Sequence[str],
    *,
    sites: Sequence[str] = SITES,
    auc: Sequence[float | None] | None = None,
    positives: Sequence[int] | None = None,
    rounds: int = 3,
    result: dict[str, Any] | None = None,
) -> Path:
    """Write a finished run; site i annotates every class but those with number i, i + n, ..."""
    folder.mkdir(parents=True, exist_ok=True)
    count = len(classes)
    aucs = list(auc) if auc is not None else [0.6 + 0.3 * (i % 7) / 7 for i in range(count)]
    found = list(positives) if positives is not None else [20 + i % 50 for i in range(count)]
    allocation = _allocation(classes, sites)
    allocation.save(folder / "partition.npz")
    per_class = {
        "auc": aucs,
        "ap": [None if each is None else each / 2 for each in aucs],
        "precision": [0.5] * count,
        "recall": [0.75] * count,
        "specificity": [0.8] * count,
        "positives": [float(each) for each in found],
        "negatives": [100.0] * count,
    }
    defined = [each for each in aucs if each is not None]
    metrics = {"macro_auc": sum(defined) / len(defined) if defined else None, "map": 0.4}
    report = {
        "classes": list(classes),
        "per_class": per_class,
        "averages": metrics,
        "defined": {"macro_auc": len(defined)},
    }
    content = {
        "method": "fedavg-pl",
        "seed": 3,
        "rounds": rounds,
        "recipe_hash": "a" * 64,
        "partition_hash": allocation.hash,
        "metrics": metrics,
        "reports": {"global": report},
        "bytes_up": 12_345,
        "bytes_down": 1_234_567,
        "seconds": 61.4,
        "environment": {"fedquilt": "0.1.0", "torch": "2.15.0"},
    }
    _write(folder / "result.json", content | (result or {}))
    _write(folder / "recipe.json", _recipe(rounds))
    _write(folder / "model.json", {"classes": list(classes), "threshold": 0.5})
    _write(folder / "data.json", _data(classes, sites, allocation))
    history = [_record(number + 1, classes, sites, metrics) for number in range(rounds)]
    (folder / "history.jsonl").write_text("".join(json.dumps(each) + "\n" for each in history))
    return folder


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


def _allocation(classes: Sequence[str], sites: Sequence[str]) -> Allocation:
    holdings = []
    for site, name in enumerate(sites):
        known = torch.tensor([[place % len(sites) != site for place in range(len(classes))]] * 4)
        holdings.append(Holding(name, torch.arange(4 * site, 4 * site + 4), known))
    return Allocation(tuple(holdings), tuple(classes), {})


def _recipe(rounds: int) -> dict[str, Any]:
    return {
        "data": {"name": "folder"},
        "partition": {"name": "natural", "by": "site"},
        "annotation": {"name": "recorded"},
        "method": {"name": "fedavg-pl"},
        "rounds": rounds,
        "seed": 3,
        "allocation_seed": None,
        "min_cell": 0,
    }


def _data(classes: Sequence[str], sites: Sequence[str], allocation: Allocation) -> dict[str, Any]:
    count = len(classes)
    split = {"annotated": [300] * count, "positives": [40] * count}
    return {
        "classes": list(classes),
        "image_shape": [1, 64, 64],
        "splits": {
            "train": {"images": 400, "patients": 150, **split},
            "test": {"images": 200, "patients": 80, **split},
        },
        "patients_in_both": 0,
        "sites": [
            {
                "name": holding.name,
                "images": 200,
                "patients": 75,
                "annotated": [150 * each for each in _annotates(holding)],
                "positives": [(4 + place) * each for place, each in enumerate(_annotates(holding))],
            }
            for holding in allocation.holdings
        ],
        "leaving": {
            "min_cell": 0,
            "clients": len(sites),
            "parts": [
                {"part": "body", "when": "every round", "kind": "Mean", "numbers": 9, "bytes": 36}
            ],
            "suppressed": {},
            "listed": 1,
            "silent": {},
        },
    }


def _annotates(holding: Holding) -> list[int]:
    return [int(each) for each in holding.known[0].tolist()]


def _record(
    number: int, classes: Sequence[str], sites: Sequence[str], metrics: dict[str, Any]
) -> dict[str, Any]:
    return {
        "round": number,
        "loss": 0.7 / number,
        "cohort": list(sites),
        "bytes_down": 100,
        "bytes_up": 100,
        "seconds": 1.0,
        "metrics": metrics,
        "per_class_auc": dict.fromkeys(classes, 0.7),
    }
