"""What a report says of a run's data: counts by split and by client, and what clients send."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedquilt.core.atomic_files import write_bytes, write_json
from fedquilt.core.errors import UserError
from fedquilt.data.allocation import Holding, Numbers, label_counts
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.data.source import Splits
from fedquilt.privacy.disclosure_report import LeavingPart, judged_parts, what_would_leave
from fedquilt.privacy.site_policy import SitePolicy
from fedquilt.privacy.site_validation import expected_validation
from fedquilt.recipes.recipe import Recipe
from fedquilt.runs.simulation import Simulation

DATA_FILE = "data.json"  # in the run folder
SITE_COUNTS = "tables/data_sites.npz"  # beside it, where sites x classes are many
MAX_CELLS = 5000  # sites x classes that data.json holds
MAX_CLIENTS = 12  # whose suppressed groups are listed; each costs a network's set-up


def write_data_facts(run: Path, recipe: Recipe, simulation: Simulation) -> None:
    """Write ``data.json``, and of many sites and classes the counts by both beside it.

    Nothing in them is about a single image or patient.
    """
    holdings, splits = simulation.allocation.holdings, simulation.splits
    training = [holding.for_training() for holding in holdings]
    counts = label_counts(training, splits.train.labels)
    parts = {"train": _part_facts(training, splits.train, counts)}
    if any(holding.has_validation for holding in holdings):
        set_aside = [holding.for_validation() for holding in holdings]
        validated = label_counts(set_aside, splits.train.labels)
        parts["validation"] = _part_facts(set_aside, splits.train, validated)
    facts = {
        "classes": list(simulation.task.classes),
        "image_shape": list(simulation.task.image_shape),
        "splits": parts | {"test": _test_facts(splits.test)},
        "patients_in_both": _shared_patients(training, splits.train, splits.test),
        "sites": _site_facts(training, splits.train, counts),
        "leaving": _leaving(recipe, simulation),
        **missing_images(splits),
    }
    write_json(run / DATA_FILE, facts)
    if counts[0].size > MAX_CELLS:
        (run / SITE_COUNTS).parent.mkdir(exist_ok=True)
        sites = [each.name for each in training]
        write_bytes(run / SITE_COUNTS, _packed(sites, simulation.task.classes, counts))


def missing_images(splits: Splits) -> dict[str, int]:
    """Return the images of a published data set that were left out; empty if none was."""
    return {"missing_images": splits.missing_images} if splits.missing_images else {}


def _packed(sites: Sequence[str], classes: Sequence[str], counts: tuple[Numbers, Numbers]) -> bytes:
    """Return an npz file of sites, classes, and annotated images and positives by both."""
    content, (annotated, positives) = io.BytesIO(), counts
    np.savez_compressed(
        content,
        sites=np.array(sites),
        classes=np.array(classes),
        annotated=annotated,
        positives=positives,
    )
    return content.getvalue()


def _part_facts(
    holdings: Sequence[Holding], data: MultiLabelDataset, counts: tuple[Numbers, Numbers]
) -> dict[str, Any]:
    """Count what clients hold; an image at two clients is one image, annotated twice."""
    rows = torch.cat([each.indices for each in holdings]).unique()
    return {
        "images": len(rows),
        "patients": _patient_count(data, rows),
        **{
            name: each.sum(0, dtype=np.int64).tolist()
            for name, each in zip(("annotated", "positives"), counts)
        },
    }


def _test_facts(data: MultiLabelDataset) -> dict[str, Any]:
    rows = torch.arange(len(data))
    return {
        "images": len(data),
        "patients": _patient_count(data, rows),
        "annotated": data.known.sum(0).tolist(),
        "positives": ((data.labels == 1) & data.known).sum(0).tolist(),
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


def _site_facts(
    holdings: Sequence[Holding], train: MultiLabelDataset, counts: tuple[Numbers, Numbers]
) -> list[dict[str, Any]]:
    """Count what each site holds; by class too, unless there are many sites and classes."""
    annotated, positives = counts
    by_class: list[dict[str, Any]] = [{}] * len(holdings)
    if annotated.size <= MAX_CELLS:
        rows = zip(annotated.tolist(), positives.tolist())
        by_class = [{"annotated": known, "positives": positive} for known, positive in rows]
    return [
        {
            "name": holding.name,
            "images": len(holding.indices),
            "patients": _patient_count(train, holding.indices),
            **own,
        }
        for holding, own in zip(holdings, by_class)
    ]


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
