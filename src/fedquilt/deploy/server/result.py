"""The result and the allocation that a study writes into its run folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from fedquilt.data.allocation import Allocation, Holding
from fedquilt.deploy.server.unannotated_rows import annotated_by
from fedquilt.deploy.study import Study
from fedquilt.metrics import Report, by_annotation_status, nan_to_none
from fedquilt.runs.assessment import GLOBAL
from fedquilt.runs.environment import environment
from fedquilt.runs.run_folder import MODELS_AT_SITES, RunFolder


def study_result(
    study: Study,
    history: Sequence[dict[str, Any]],
    report: Report | None,
    missed: Mapping[str, str],
) -> dict[str, Any]:
    """Return the content of result.json; ``missed`` names sites without the final model."""
    recipe = study.recipe
    annotated = {name: annotated_by(study, name).tolist() for name in study.site_names}
    status: Any = {} if report is None else by_annotation_status(report, annotated)
    return {
        "method": recipe.to_dict()["method"]["name"],
        "seed": recipe.seed,
        "rounds": len(history),
        "study": study.name,
        "recipe_hash": recipe.hash,
        "partition_hash": site_allocation(study).hash,
        "metrics": {} if report is None else nan_to_none(dict(report.averages)),
        "spread_over_clients": {},
        "reports": {} if report is None else {GLOBAL: report.to_dict()},
        "annotation_status": nan_to_none(status),
        "pseudo_labels": None,  # pseudo-labels stay at the sites
        "bytes_up": sum(record["bytes_up"] for record in history),
        "bytes_down": sum(record["bytes_down"] for record in history),
        "seconds": sum(record["seconds"] for record in history),
        "missed_the_end": dict(missed),
        "environment": environment("cpu"),
    }


def contributions(
    study: Study, history: Sequence[dict[str, Any]], departed: Mapping[str, str]
) -> dict[str, Any]:
    """Return in how many rounds each site took part, from which to which, and why it ended."""
    found: dict[str, Any] = {}
    for name in study.site_names:
        rounds = [record["round"] for record in history if name in record["cohort"]]
        ends = {"first": rounds[0], "last": rounds[-1]} if rounds else {}
        ended = {"ended": departed[name]} if name in departed else {}
        found[name] = {"rounds": len(rounds), **ends, **ended}
    return found


def site_allocation(study: Study) -> Allocation:
    """Return who annotates what, with one row per site: the server does not know the images."""
    holdings = tuple(
        Holding(name, torch.tensor([row]), annotated_by(study, name)[None])
        for row, name in enumerate(study.site_names)
    )
    protocol = {"partition": "sites", "rows": "one for each site, in place of its images"}
    return Allocation(holdings, study.classes, protocol)


def missing_model_notes(run: Path) -> list[str]:
    """Return notes on models that a fetched run folder does not hold."""
    folder = RunFolder(run)
    missed = folder.read_json(folder.result).get("missed_the_end", {})
    lines = []
    if not folder.model.exists():
        lines.append(MODELS_AT_SITES)
    if missed:
        lines.append(
            f"without the final model, because they were not connected: {', '.join(missed)}; once "
            "they are connected, run `fedquilt deploy submit --resume` to send it"
        )
    return lines
