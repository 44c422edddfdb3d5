"""Comparisons made by hand, as ``reports.comparison.compare`` returns them."""

from __future__ import annotations

from typing import Any

PAIR = {"value": 0.06, "low": 0.037, "high": 0.084, "p": 1e-6, "p_holm": 1e-6, "ahead": "a"}
UNSURE = {"value": -0.01, "low": -0.05, "high": 0.03, "p": 0.4, "p_holm": 0.8, "ahead": None}


def made_group(label: str, *values: float, is_bound: bool = False, classes: Any = ("x",)) -> Any:
    summary = {"mean": sum(values) / len(values), "deviation": 0.01, "values": list(values)}
    return {
        "label": label,
        "is_bound": is_bound,
        "runs": [f"home/somebody/runs/{label}{seed}" for seed in range(len(values))],
        "seeds": list(range(len(values))),
        "metrics": {"macro_auc": summary},
        "classes": dict.fromkeys(classes, summary),
    }


def made_comparison(classes: Any = ("x", "y"), label: str = "a", **changes: Any) -> dict[str, Any]:
    test = {
        "one": label,
        "other": "b",
        "why_not": None,
        "seeds": 2,
        "patients": 300,
        "unit": "patient",
        "macro_auc": PAIR | {"classes": len(classes)},
        "classes": dict.fromkeys(classes, UNSURE) | {classes[0]: PAIR},
        "words": f"{label} is significantly ahead",
    }
    return {
        "metrics": ["macro_auc"],
        "groups": [
            made_group(label, 0.8, 0.9, classes=classes),
            made_group("b", 0.7, 0.7, classes=classes),
        ],
        "ahead": {"macro_auc": "a"},
        "tests": [test],
        "class_metric": "auc",
        "class_ahead": dict.fromkeys(classes) | {classes[0]: "a"},
        "also_differ_in": [],
        **changes,
    }
