"""What a report says of a run's data: counts by split and by client, and what clients send."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.data.allocation import Holding
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.privacy.disclosure_report import what_would_leave
from fedquilt.privacy.site_policy import SitePolicy
from fedquilt.recipes.recipe import Recipe
from fedquilt.runs.simulation import Simulation

DATA_FILE = "data.json"  # in the run folder
MAX_CLIENTS = 12  # whose suppressed groups are listed; each costs a network's set-up


def data_facts(recipe: Recipe, simulation: Simulation) -> dict[str, Any]:
    """Return the content of data.json; nothing in it is about a single image or patient."""
    splits = {"train": simulation.splits.train, "test": simulation.splits.test}
    return {
        "classes": list(simulation.task.classes),
        "image_shape": list(simulation.task.image_shape),
        "splits": {name: _split_facts(data) for name, data in splits.items()},
        "patients_in_both": _shared_patients(splits["train"], splits["test"]),
        "sites": [_site_facts(each, splits["train"]) for each in simulation.allocation.holdings],
        "leaving": _leaving(recipe, simulation),
    }


def _split_facts(data: MultiLabelDataset) -> dict[str, Any]:
    return {
        "images": len(data),
        "patients": None if data.groups is None else len(set(data.groups)),
        **_label_counts(data.labels, data.known),
    }


def _label_counts(labels: Tensor, known: Tensor) -> dict[str, list[int]]:
    return {
        "annotated": known.sum(0).tolist(),
        "positives": ((labels == 1) & known).sum(0).tolist(),
    }


def _shared_patients(train: MultiLabelDataset, test: MultiLabelDataset) -> int | None:
    if train.groups is None or test.groups is None:
        return None
    return len(set(train.groups) & set(test.groups))


def _site_facts(holding: Holding, train: MultiLabelDataset) -> dict[str, Any]:
    patients = None
    if train.groups is not None:
        patients = len({train.groups[row] for row in holding.indices.tolist()})
    return {
        "name": holding.name,
        "images": len(holding.indices),
        "patients": patients,
        **_label_counts(train.labels[holding.indices], holding.known),
    }


def _leaving(recipe: Recipe, simulation: Simulation) -> dict[str, Any]:
    """Return the parts that a client sends and, under a floor, what it withholds at which client.

    Without a floor nothing is withheld, and all clients send parts of the same shapes.
    """
    policy, names = SitePolicy(min_cell=recipe.min_cell), list(simulation.clients)
    listed = names[:MAX_CLIENTS] if recipe.min_cell > 1 else names[:1]
    parts: list[dict[str, Any]] = []
    suppressed: dict[str, dict[str, list[str]]] = {}
    silent: dict[str, str] = {}
    for name in listed:
        try:
            rows = what_would_leave(
                recipe.method, simulation.clients[name], simulation.task, policy
            )
        except UserError as error:  # the whole client is below the floor
            silent[name] = str(error)
            continue
        suppressed[name] = {row.part: list(row.suppressed) for row in rows if row.suppressed}
        parts = parts or [
            {key: getattr(row, key) for key in ("part", "when", "kind", "numbers", "bytes")}
            for row in rows
        ]
    return {
        "min_cell": recipe.min_cell,
        "clients": len(names),
        "parts": parts,
        "suppressed": {name: found for name, found in suppressed.items() if found},
        "listed": len(listed),
        "silent": silent,
    }
