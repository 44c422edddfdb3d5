"""Provenance: the images each transmitted value is computed from, for a site's disclosure floor.

A tensor's entries may be computed from different images: one group of images per entry, or several
alternative groups, of which the smallest decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor

from fedquilt.data.client_data import ClientData

# One entry for all classes: "images", all of them; "any positive", those with an annotated
# positive; "every class", the annotated images of each class, one group per class. One entry per
# class: "annotated" and "positives", its annotated images and positives; "sides", two groups, its
# annotated negatives and positives, as one reveals the other; "annotated or not", two groups for
# the same reason; "positives or pseudo-labels", annotated or pseudo-labelled.
Counted: TypeAlias = Literal[
    "images",
    "any positive",
    "every class",
    "annotated",
    "annotated or not",
    "positives",
    "sides",
    "positives or pseudo-labels",
]
OF_ANNOTATORS = ("annotated", "positives", "sides")  # empty for a class that is not annotated
KNOWN_GROUPS = get_args(Counted)

# A tuple: an entry is withheld if any of its rules says so. A function of data and state returns a
# lower bound of the number of images, (entries..., groups), if it is unknown which they are. A
# mapping: rules by the names of the part's tensors.
OneRule: TypeAlias = Counted | Callable[[ClientData, Any], Tensor]
GroupRule: TypeAlias = OneRule | tuple[OneRule, ...]
Provenance: TypeAlias = GroupRule | Mapping[str, GroupRule]


def images_of(rule: Counted, data: ClientData, filled_in: Tensor | None = None) -> Tensor:
    """(n, entries..., groups) bool: the images that each entry is computed from."""
    known = data.known
    positives = known & (data.labels == 1)
    if rule == "images":
        return torch.ones(len(known), 1, dtype=torch.bool)
    if rule == "any positive":
        return positives.any(1, keepdim=True)
    if rule == "every class":
        return known
    if rule == "sides":
        return torch.stack([known & ~positives, positives], dim=2)
    if rule == "annotated or not":
        return torch.stack([known, ~known], dim=2)
    if rule == "positives or pseudo-labels" and filled_in is not None:
        positives = positives | (~known & (filled_in == 1))
    return (known if rule == "annotated" else positives)[..., None]


def patients_of(images: Tensor, data: ClientData) -> Tensor:
    """(entries..., groups): the number of patients in each group, or of images without patient ids.

    ``images`` is the result of :func:`images_of`, or numbers of images; for these, return a lower
    bound of the number of patients.
    """
    patients = data.patients
    if images.dtype != torch.bool:
        return images if patients is None else images / patients.bincount().max()
    if patients is None:
        return images.sum(0)
    flat = images.reshape(len(images), -1).to(torch.int32)
    seen = torch.zeros(int(patients.max()) + 1, flat.shape[1], dtype=torch.int32)
    return (seen.index_add_(0, patients, flat) > 0).sum(0).reshape(images.shape[1:])
