"""What a report says of a run's data: counts by split and by client, and what clients send."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.data.allocation import Holding
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.data.source import Splits
from fedquilt.privacy.disclosure_report import LeavingPart, judged_parts, what_would_leave
from fedquilt.privacy.site_policy import SitePolicy
from fedquilt.privacy.site_validation import expected_validation
from fedquilt.recipes.recipe import Recipe
from fedquilt.runs.simulation import Simulation

DATA_FILE = "data.json"  # in the run folder
MAX_CLIENTS = 12  # whose suppressed groups are listed; each costs a network's set-up


def data_facts(recipe: Recipe, simulation: Simulation) -> dict[str, Any]:
    """Return the content of data.json; nothing in it is about a single image or patient."""
    holdings, splits = simulation.allocation.holdings, simulation.splits
    training = [holding.for_training() for holding in holdings]
    parts = {"train": _part_facts(training, splits.train)}
    if any(holding.has_validation for holding in holdings):
        set_aside = [holding.for_validation() for holding in holdings]
        parts["validation"] = _part_facts(set_aside, splits.train)
    return {
        "classes": list(simulation.task.classes),
        "image_shape": list(simulation.task.image_shape),
        "splits": parts | {"test": _test_facts(splits.test)},
        "patients_in_both": _shared_patients(training, splits.train, splits.test),
        "sites": [_site_facts(each, splits.train) for each in training],
        "leaving": _leaving(recipe, simulation),
        **missing_images(splits),
    }


def missing_images(splits: Splits) -> dict[str, int]:
    """Return the images of a published data set that were left out; empty if none was."""
    return {"missing_images": splits.missing_images} if splits.missing_images else {}


def _part_facts(holdings: Sequence[Holding], data: MultiLabelDataset) -> dict[str, Any]:
    """Count what clients hold; an image at two clients is one image, annotated twice."""
    counts = [_label_counts(data.labels[each.indices], each.known) for each in holdings]
    rows = torch.cat([each.indices for each in holdings]).unique()
    return {
        "images": len(rows),
        "patients": _patient_count(data, rows),
        **{
            name: [sum(column) for column in zip(*(each[name] for each in counts))]
            for name in ("annotated", "positives")
        },
    }


def _test_facts(data: MultiLabelDataset) -> dict[str, Any]:
    rows = torch.arange(len(data))
    return {
        "images": len(data),
        "patients": _patient_count(data, rows),
        **_label_counts(data.labels, data.known),
    }


def _label_counts(labels: Tensor, known: Tensor) -> dict[str, list[int]]:
    return {
        "annotated": known.sum(0).tolist(),
        "positives": ((labels == 1) & known).sum(0).tolist(),
    }


def _patients(data: MultiLabelDataset, rows: Tensor) -> set[str] | None:
    if data.groups is None:
        return None
    return {data.groups[row] for row in rows.tolist()}


def _patient_count(data: MultiLabelDataset, rows: Tensor) -> int | None:
    found = _patients(data, rows)
    return None if found is None else len(found)


def _shared_patients(
    training: Sequence[Holding], train: MultiLabelDataset, test: MultiLabelDataset
) -> int | None:
    """Return how many patients are trained on and tested on."""
    trained = _patients(train, torch.cat([each.indices for each in training]))
    if trained is None or test.groups is None:
        return None
    return len(trained & set(test.groups))


def _site_facts(holding: Holding, train: MultiLabelDataset) -> dict[str, Any]:
    return {
        "name": holding.name,
        "images": len(holding.indices),
        "patients": _patient_count(train, holding.indices),
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
        rows += _validated(recipe, simulation, name, policy)
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


def _validated(
    recipe: Recipe, simulation: Simulation, client: str, policy: SitePolicy
) -> list[LeavingPart]:
    """What a client says of a network on its validation images; nothing if it judges its own."""
    held = simulation.validation.get(client)
    if held is None or recipe.method.global_weights({"weights": {}}) is None:
        return []
    classes = simulation.task.classes
    parts = expected_validation(len(classes))
    return judged_parts(parts, "validated rounds", held, classes, policy)
