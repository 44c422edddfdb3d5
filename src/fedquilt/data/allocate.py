"""Put a partition and an annotation rule together into an allocation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from fedquilt.data.allocation import Allocation, Holding
from fedquilt.data.annotations import ANNOTATIONS
from fedquilt.data.annotations.annotation import Annotation
from fedquilt.data.labelled import Labelled
from fedquilt.data.partitions import PARTITIONS
from fedquilt.data.partitions.partition import Assignment, Partition
from fedquilt.errors import UserError


def allocate(data: Labelled, partition: Partition, annotation: Annotation, seed: int) -> Allocation:
    """Who holds which images and knows which of their labels.

    A label is known where the data, the client's annotation rule and the partition all allow it.
    """
    _refuse_blank_cells(data, annotation)
    assignment = partition.assign(data, seed)
    _refuse_empty_clients(assignment)
    mask = annotation.mask(assignment.names, data.classes, seed)
    holdings = []
    for position, (name, rows) in enumerate(zip(assignment.names, assignment.indices)):
        known = data.known[rows] & mask[position]
        if assignment.known is not None:
            known &= assignment.known[position]
        holdings.append(Holding(name, rows, known))
    protocol = {
        "partition": _described(partition, PARTITIONS),
        "annotation": _described(annotation, ANNOTATIONS),
        "seed": seed,
        "images": len(data.labels),
        "notes": dict(assignment.notes),
    }
    allocation = Allocation(tuple(holdings), data.classes, protocol)
    _refuse_unannotated_classes(allocation)
    return allocation


def _described(setting: Partition | Annotation, table: Mapping[str, str]) -> dict[str, Any]:
    """The name a recipe uses for it (an outside one: where it is defined), and its settings."""
    place = f"{type(setting).__module__}:{type(setting).__qualname__}"
    names = {entry: name for name, entry in table.items()}
    return {"name": names.get(place, place), **asdict(setting)}


def _refuse_blank_cells(data: Labelled, annotation: Annotation) -> None:
    if annotation.needs_complete_data and not bool(data.known.all()):
        name, share = _described(annotation, ANNOTATIONS)["name"], 1 - data.known.float().mean()
        raise UserError(
            f"annotation {name!r} needs data in which every label is annotated, but "
            f"{share.item():.1%} are not; use 'recorded' to keep the annotations as they are"
        )


def _refuse_empty_clients(assignment: Assignment) -> None:
    empty = [name for name, rows in zip(assignment.names, assignment.indices) if not len(rows)]
    if empty:
        raise UserError(
            f"the partition leaves {', '.join(empty)} without images; "
            "use fewer clients, or ask for a smallest_client of at least 1"
        )


def _refuse_unannotated_classes(allocation: Allocation) -> None:
    has_annotator = allocation.annotation_map().any(dim=0).tolist()
    orphans = [
        name for name, is_annotated in zip(allocation.classes, has_annotator) if not is_annotated
    ]
    if orphans:
        raise UserError(
            f"no client annotates {', '.join(orphans)}, so nothing could be learnt about it; "
            "leave the class out, let another client annotate it, or change the seed"
        )
