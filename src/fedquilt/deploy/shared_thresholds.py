"""Thresholds and calibration in a message, and what a site makes of them.

The server fits what it can from its sites' histograms. A class for which no site has enough
positives is fitted by each site for itself, on its own validation images, and stays there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedquilt.core.tree import Tree
from fedquilt.deploy.protocol.message_bounds import BadMessage
from fedquilt.deploy.study import Study
from fedquilt.metrics.calibration import sigmoid
from fedquilt.runs.fitted_decisions import Found

NAMES = ("threshold", "has_threshold", "slope", "intercept", "is_calibrated")
BY_STUDY, BY_SITE = "the study", "this site"


def reports_at_sites(study: Study) -> bool:
    """Whether sites say at the end what the model is worth on images they did not train on."""
    return study.recipe.validation.share > 0


def fits_at_sites(study: Study) -> bool:
    """Whether thresholds or calibration are fitted on what sites send at the end."""
    return study.validates_at_sites and study.recipe.evaluation.decisions.needs_validation


def as_tensors(found: Found, classes: Sequence[str]) -> dict[str, Tree]:
    """Return what was fitted, in numbers per class; empty if nothing was asked for."""
    if not found:
        return {}
    table = torch.zeros(len(NAMES), len(classes), dtype=torch.float64)
    thresholds = found.get("thresholds", {}).get("classes", {})
    calibration = found.get("calibration", {}).get("classes", {})
    for column, name in enumerate(classes):
        entry, line = thresholds.get(name, {}), calibration.get(name, {})
        if entry.get("logit") is not None and "fallback" not in entry:
            table[:2, column] = torch.tensor([entry["logit"], 1.0])
        if "slope" in line:
            table[2:, column] = torch.tensor([line["slope"], line["intercept"], 1.0])
    return {"decisions": dict(zip(NAMES, table))}


def from_tensors(tree: Tree, classes: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return thresholds and calibration by class; raise BadMessage for anything else."""
    if not tree:
        return {"thresholds": {}, "calibration": {}}
    found = tree.get("decisions") if isinstance(tree, Mapping) else None
    if not isinstance(found, Mapping) or set(found) != set(NAMES):
        raise BadMessage("the message holds no decisions")
    columns: dict[str, list[float]] = {}
    for name in NAMES:
        column = found[name]
        if not isinstance(column, Tensor) or (column.dtype, *column.shape) != (
            torch.float64,
            len(classes),
        ):
            raise BadMessage(f"the decisions have no number per class in {name!r}")
        if not bool(column.isfinite().all()):
            raise BadMessage(f"the decisions have NaN or infinite numbers in {name!r}")
        columns[name] = column.tolist()
    rows = [dict(zip(NAMES, row)) for row in zip(*(columns[name] for name in NAMES))]
    return {
        "thresholds": {
            name: {
                "logit": row["threshold"],
                "probability": float(sigmoid(torch.tensor([row["threshold"]]).double().numpy())[0]),
                "fitted_at": BY_STUDY,
            }
            for name, row in zip(classes, rows)
            if row["has_threshold"]
        },
        "calibration": {
            name: {"slope": row["slope"], "intercept": row["intercept"], "fitted_at": BY_STUDY}
            for name, row in zip(classes, rows)
            if row["is_calibrated"]
        },
    }


def at_site(shared: Mapping[str, Mapping[str, Any]], own: Found) -> Found:
    """Return what a site keeps for its model: the study's where there is one, else its own."""
    return {
        kind: {
            **own[kind],
            "classes": {
                name: shared[kind].get(name, {**entry, "fitted_at": BY_SITE})
                for name, entry in own[kind]["classes"].items()
            },
        }
        for kind in own
    }
