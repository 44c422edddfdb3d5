"""Allocation: which images each client holds and which labels it has annotated."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedquilt.core.atomic_files import write_bytes
from fedquilt.core.errors import UserError
from fedquilt.core.parsed_text import UNREADABLE, parse_json
from fedquilt.data.annotations import ANNOTATIONS
from fedquilt.data.annotations.rules import Annotation
from fedquilt.data.client_arrays import read_client_arrays, write_client_arrays
from fedquilt.data.dataset import LabelView
from fedquilt.data.partitions import PARTITIONS
from fedquilt.data.partitions.partition import Assignment, Partition

FORMAT = "fedquilt allocation 1"
Numbers: TypeAlias = NDArray[np.unsignedinteger[Any]]

ARRAYS = {"indices": "<i8", "known": "u1", "validation": "u1"}  # with the dtypes that are hashed


@dataclass(frozen=True, eq=False)
class Holding:
    """One client's images, as indices into the data set, and which of their labels it annotated."""

    name: str
    indices: Tensor  # (n,) int64
    known: Tensor  # (n, C) bool; one row in memory where all rows are equal
    validation: Tensor | None = None  # (n,) bool: not trained on; None: the run does not validate

    def __post_init__(self) -> None:
        if self.indices.dtype != torch.int64 or self.indices.ndim != 1:
            raise ValueError(f"indices of {self.name!r} must be int64 of shape (n,)")
        if self.known.dtype != torch.bool or self.known.ndim != 2:
            raise ValueError(f"known of {self.name!r} must be bool of shape (n, C)")
        rows, images = self.known.shape[0], self.indices.shape[0]
        if rows != images:
            raise ValueError(
                f"known of {self.name!r} has {rows} rows, expected one for each of {images} images"
            )
        marks = self.validation
        if marks is not None and (marks.dtype, marks.shape) != (torch.bool, self.indices.shape):
            raise ValueError(f"validation of {self.name!r} must be bool, one for each image")
        if rows < 2 or self.known.stride(0) == 0 or self.known.is_cuda:
            return
        array = self.known.numpy()  # of small tensors numpy asks faster
        if (array == array[0]).all():
            object.__setattr__(self, "known", self.known[0].clone().expand_as(self.known))

    @property
    def has_validation(self) -> bool:
        return self.validation is not None and bool(self.validation.any())

    def for_training(self) -> Holding:
        """The images to train on."""
        return self if self.validation is None else self._where(~self.validation)

    def for_validation(self) -> Holding:
        """The images to validate on, perhaps none."""
        if self.validation is None:
            return Holding(self.name, self.indices[:0], self.known[:0])
        return self._where(self.validation)

    def _where(self, kept: Tensor) -> Holding:
        return Holding(self.name, self.indices[kept], self.known[kept])


@dataclass(frozen=True, eq=False)
class Allocation:
    """The result of a partition and an annotation rule; equal allocations have equal hashes."""

    holdings: tuple[Holding, ...]
    classes: tuple[str, ...]
    protocol: dict[str, Any] = field(default_factory=dict)  # JSON: settings, seed, counts

    def __post_init__(self) -> None:
        names = [holding.name for holding in self.holdings]
        if not names or len(set(names)) != len(names):
            raise ValueError(
                "an allocation needs at least one client, and client names must differ"
            )
        for holding in self.holdings:
            if holding.known.shape[1] != len(self.classes):
                raise ValueError(
                    f"known of {holding.name!r} has {holding.known.shape[1]} columns, expected one "
                    f"for each of {len(self.classes)} classes"
                )
        # Tuples become lists now, so that a loaded allocation equals the saved one.
        object.__setattr__(self, "protocol", json.loads(_json(self.protocol)))

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the content; does not depend on the platform or on the order of keys."""
        digest = hashlib.sha256(self._header().encode())
        for name, parts in self._arrays().items():
            for part in parts:
                digest.update(np.ascontiguousarray(part, dtype=ARRAYS[name]).data)
        return digest.hexdigest()

    def annotation_map(self) -> Tensor:
        """(K, C) bool: whether the client annotated the class in at least one image."""
        return torch.stack([holding.known.any(dim=0) for holding in self.holdings])

    def save(self, path: Path) -> None:
        """Write one ``.npz`` file of plain arrays, atomically."""
        content = io.BytesIO()
        texts = {"header": self._header(), "hash": self.hash}
        write_client_arrays(content, texts, self._arrays())
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, content.getvalue())

    @classmethod
    def load(cls, path: Path) -> Allocation:
        """Read a file written by :meth:`save` and verify its hash."""
        try:
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                header, stored = parse_json(str(file["header"])), str(file["hash"])
                if header["format"] != FORMAT:
                    raise ValueError(f"its format is {header['format']!r}, expected {FORMAT!r}")
                arrays = {
                    name: read_client_arrays(file.zip, name, header["sizes"])
                    for name in ARRAYS
                    if name in file
                }
                allocation = cls._from_arrays(header, arrays)
        except FileNotFoundError:
            raise UserError(
                f"no allocation at {path}: it is not a run folder's partition.npz"
            ) from None
        except UNREADABLE as error:
            raise UserError(
                f"{path} is not a complete allocation file ({error}); create it again from its "
                "recipe"
            ) from error
        if allocation.hash != stored:
            raise UserError(
                f"{path} was altered after it was written: its content has the hash "
                f"{allocation.hash}, expected {stored}; create it again from its recipe"
            )
        return allocation

    @classmethod
    def _from_arrays(
        cls, header: Any, arrays: Mapping[str, Iterator[NDArray[np.generic]]]
    ) -> Allocation:
        holdings = tuple(
            Holding(name, **dict(zip(arrays, map(torch.tensor, parts))))
            for name, *parts in zip(header["names"], *arrays.values(), strict=True)
        )
        return cls(holdings, tuple(header["classes"]), header["protocol"])

    def _header(self) -> str:
        return _json(
            {
                "format": FORMAT,
                "names": [holding.name for holding in self.holdings],
                "sizes": [len(holding.indices) for holding in self.holdings],
                "classes": list(self.classes),
                "protocol": self.protocol,
            }
        )

    def _arrays(self) -> dict[str, list[NDArray[np.generic]]]:
        """Each client's arrays; ``validation`` only if the run validates."""
        arrays = {}
        for name in ARRAYS:
            parts = [getattr(holding, name) for holding in self.holdings]
            if all(part is not None for part in parts):
                arrays[name] = [part.cpu().numpy() for part in parts]
        return arrays


def label_counts(holdings: Sequence[Holding], labels: Tensor) -> tuple[Numbers, Numbers]:
    """Return (K, C) annotated images and annotated positives; ``labels`` are of the data set.

    They are in the smallest integers that hold them: there may be 51,414 clients and 1,628 classes.
    """
    largest = max(len(each.indices) for each in holdings)
    shape = (len(holdings), labels.shape[1])
    annotated, positives = (np.empty(shape, np.min_scalar_type(largest)) for _ in range(2))
    for row, each in enumerate(holdings):
        annotated[row] = each.known.sum(0).numpy()
        positives[row] = ((labels[each.indices] == 1) & each.known).sum(0).numpy()
    return annotated, positives


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":"))


def allocate(
    data: LabelView, partition: Partition, annotation: Annotation, seed: int
) -> Allocation:
    """Assign images and annotations to clients.

    A label is known where the data, the annotation rule and the partition all say so.
    """
    _check_complete(data, annotation)
    assignment = partition.assign(data, seed)
    _check_no_empty_client(assignment)
    mask = annotation.mask(assignment.names, data.classes, seed)
    holdings = []
    for position, (name, indices) in enumerate(zip(assignment.names, assignment.indices)):
        known = data.known[indices] & mask[position]
        if assignment.known is not None:
            known &= assignment.known[position]
        holdings.append(Holding(name, indices, known))
    protocol = {
        "partition": _description(partition, PARTITIONS),
        "annotation": _description(annotation, ANNOTATIONS),
        "seed": seed,
        "images": len(data.labels),
        "notes": dict(assignment.notes),
    }
    allocation = Allocation(tuple(holdings), data.classes, protocol)
    _check_every_class_annotated(allocation)
    return allocation


def _description(setting: Partition | Annotation, table: Mapping[str, str]) -> dict[str, Any]:
    """The registry name (of a user's own class: module and class name) and the settings."""
    path = f"{type(setting).__module__}:{type(setting).__qualname__}"
    names = {entry: name for name, entry in table.items()}
    return {"name": names.get(path, path), **asdict(setting)}


def _check_complete(data: LabelView, annotation: Annotation) -> None:
    if annotation.needs_complete_data and not bool(data.known.all()):
        name, share = _description(annotation, ANNOTATIONS)["name"], 1 - data.known.float().mean()
        raise UserError(
            f"annotation {name!r} needs data in which every label is annotated, but "
            f"{share.item():.1%} are not; use 'recorded' to keep the annotations of the data"
        )


def _check_no_empty_client(assignment: Assignment) -> None:
    empty = [
        name for name, indices in zip(assignment.names, assignment.indices) if not len(indices)
    ]
    if empty:
        raise UserError(
            f"the partition leaves {', '.join(empty)} without images; "
            "use fewer clients, or set smallest_client to at least 1"
        )


def _check_every_class_annotated(allocation: Allocation) -> None:
    has_annotator = allocation.annotation_map().any(dim=0).tolist()
    unannotated = [
        name for name, is_annotated in zip(allocation.classes, has_annotator) if not is_annotated
    ]
    if unannotated:
        raise UserError(
            f"no client annotates {', '.join(unannotated)}, so nothing can be learnt about it; "
            "leave the class out, let another client annotate it, or change the seed"
        )
