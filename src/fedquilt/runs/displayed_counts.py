"""What a display shows without training: positives per client and class, and canvases."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from fedquilt.core.seeding import generator_for
from fedquilt.data.allocation import allocate
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.data.sources.train_labels import train_labels
from fedquilt.data.validation import set_aside
from fedquilt.recipes.recipe import Recipe

SAME_CLASS = {"pleural_thickening": "thickening"}  # ours -> as FedLSM prints it


def client_counts(recipe: Recipe, cache: Path) -> dict[str, Any]:
    """Return each client's training images and annotated positives, (K, C)."""
    data = train_labels(recipe.data, cache)
    seed = recipe.seed if recipe.allocation_seed is None else recipe.allocation_seed
    allocation = allocate(data, recipe.partition, recipe.annotation, seed)
    holdings = [
        each.for_training()
        for each in set_aside(allocation, data, None, recipe.validation).holdings
    ]
    positives = [((data.labels[each.indices] == 1) & each.known).sum(0) for each in holdings]
    counts = torch.stack(positives)
    held = counts.sum(0).clamp(min=1)
    return {
        "clients": [each.name for each in holdings],
        "classes": list(data.classes),
        "images": [len(each.indices) for each in holdings],
        "positives": counts.tolist(),
        # 1: one client holds every positive of the class; 1 / K: all hold as many
        "largest_share": {
            name: round(float(share), 4)
            for name, share in zip(data.classes, counts.max(0).values / held)
        },
        "notes": dict(allocation.protocol["notes"]),
    }


def beside(counts: Mapping[str, Any], published: Mapping[str, Mapping[str, float]]) -> list[Any]:
    """Return the paper's positives in the shape of ours; its clients are A, B and so on."""
    rows = []
    for place in range(len(counts["clients"])):
        own = {
            name.casefold(): value
            for name, value in published[f"client {chr(ord('A') + place)}"].items()
        }
        names = [name.casefold() for name in counts["classes"]]
        rows.append([own[SAME_CLASS.get(name, name)] for name in names])
    return rows


def distance(ours: list[list[int]], theirs: list[list[float]]) -> dict[str, float]:
    """Compare two tables of counts; if both are random draws, ``z`` is near 1."""
    pairs = [
        (a, b)
        for our_row, their_row in zip(ours, theirs)
        for a, b in zip(our_row, their_row)
        if a or b
    ]
    squares = [(a - b) ** 2 / (a + b) for a, b in pairs]
    return {
        "entries": len(pairs),
        "same_annotators": sum(bool(a) == bool(b) for a, b in pairs),
        "total_ours": sum(a for a, _ in pairs),
        "total_paper": sum(b for _, b in pairs),
        "z": round((sum(squares) / len(squares)) ** 0.5, 2),
    }


def some_images(data: MultiLabelDataset, per_count: int) -> dict[str, Any]:
    """Draw images with one, two and more positives; return pixels and the names of their labels."""
    positives = ((data.labels == 1) & data.known).sum(1)
    chosen = []
    for count in positives.unique().tolist():
        rows = torch.nonzero(positives == count).flatten()
        generator = generator_for("display", "images", count)
        chosen += rows[torch.randperm(len(rows), generator=generator)[:per_count]].tolist()
    names = [
        [name for name, is_positive in zip(data.classes, data.labels[row].tolist()) if is_positive]
        for row in chosen
    ]
    return {
        "images": data.images[chosen],
        "labels": names,
        "ids": [data.ids[row] for row in chosen],
    }
