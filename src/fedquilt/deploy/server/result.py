"""What a study's run folder says at the end: its result, and who annotates what."""

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
    missed_the_end: Mapping[str, str],
) -> dict[str, Any]:
    recipe = study.recipe
    annotated = {name: annotated_by(study, name).tolist() for name in study.site_names}
    status: Any = {} if report is None else by_annotation_status(report, annotated)
    return {
        "method": recipe.to_dict()["method"]["name"],
        "seed": recipe.seed,
        "rounds": recipe.rounds,
        "study": study.name,
        "recipe_hash": recipe.hash,
        "partition_hash": site_allocation(study).hash,
        "metrics": {} if report is None else nan_to_none(dict(report.averages)),
        "spread_over_clients": {},
        "reports": {} if report is None else {GLOBAL: report.to_dict()},
        "annotation_status": nan_to_none(status),
        "pseudo_labels": None,  # what sites filled in stays with them
        "bytes_up": sum(record["bytes_up"] for record in history),
        "bytes_down": sum(record["bytes_down"] for record in history),
        "seconds": sum(record["seconds"] for record in history),
        "missed_the_end": dict(missed_the_end),  # sites whose model is that of an earlier round
        "environment": environment("cpu"),
    }


def site_allocation(study: Study) -> Allocation:
    """Who annotates what, one row for each site: images are not known to the server."""
    holdings = tuple(
        Holding(name, torch.tensor([row]), annotated_by(study, name)[None])
        for row, name in enumerate(study.site_names)
    )
    protocol = {"partition": "sites", "rows": "one for each site, in place of its images"}
    return Allocation(holdings, study.classes, protocol)


def where_models_are(run: Path) -> list[str]:
    """What whoever fetches a run folder has to know about the models that are not in it."""
    folder = RunFolder(run)
    missed = folder.read_json(folder.result).get("missed_the_end", {})
    lines = []
    if not folder.model.exists():
        lines.append(MODELS_AT_SITES)
    if missed:
        lines.append(
            f"not reached at the end, so with the model of an earlier round: {', '.join(missed)}; "
            "once connected again, `fedquilt deploy submit --resume` brings them up to date"
        )
    return lines
