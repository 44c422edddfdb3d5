"""What each number that is sent tells of: the images behind it, for a site's disclosure floor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor

from fedquilt.data.client_data import ClientData

# One cell: "images", all of them; "any positive", those with one; "every class", the annotated
# images of all classes at once. A cell per class: the others. "sides" are a class's annotated
# negatives and positives, of which one would give away the other; "believed positives" are
# annotated or filled in; "annotated or not" are both groups of a class's images, likewise.
Counted: TypeAlias = Literal[
    "images",
    "any positive",
    "every class",
    "annotated",
    "annotated or not",
    "positives",
    "sides",
    "believed positives",
]
OF_ANNOTATORS = ("annotated", "positives", "sides")  # nothing for a class that is not annotated
KNOWN_GROUPS = get_args(Counted)

# Several: a cell is small if it is so by one of them. A function, given data and state, says how
# many images there are at least, (cells..., groups), where nobody knows which. By leaf: names of a
# part's own tensors.
OneRule: TypeAlias = Counted | Callable[[ClientData, Any], Tensor]
GroupRule: TypeAlias = OneRule | tuple[OneRule, ...]
Provenance: TypeAlias = GroupRule | Mapping[str, GroupRule]


def images_of(cells: Counted, data: ClientData, filled_in: Tensor | None = None) -> Tensor:
    """(n, cells..., groups) bool: a cell is as telling as the smallest group of its images."""
    known = data.known
    positives = known & (data.labels == 1)
    if cells == "images":
        return torch.ones(len(known), 1, dtype=torch.bool)
    if cells == "any positive":
        return positives.any(1, keepdim=True)
    if cells == "every class":
        return known
    if cells == "sides":
        return torch.stack([known & ~positives, positives], dim=2)
    if cells == "annotated or not":
        return torch.stack([known, ~known], dim=2)
    if cells == "believed positives" and filled_in is not None:
        positives = positives | (~known & (filled_in == 1))
    return (known if cells == "annotated" else positives)[..., None]


def patients_of(images: Tensor, data: ClientData) -> Tensor:
    """(cells..., groups): the patients in each group, or its images where patients are not told.

    ``images`` is as :func:`images_of` gives it; of mere numbers of images, the patients there
    are at least.
    """
    patients = data.patients
    if images.dtype != torch.bool:
        return images if patients is None else images / patients.bincount().max()
    if patients is None:
        return images.sum(0)
    flat = images.reshape(len(images), -1).to(torch.int32)
    seen = torch.zeros(int(patients.max()) + 1, flat.shape[1], dtype=torch.int32)
    return (seen.index_add_(0, patients, flat) > 0).sum(0).reshape(images.shape[1:])
