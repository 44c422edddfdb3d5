"""DisclosureFloor: values computed from fewer than ``min_cell`` patients are withheld."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedquilt.core.errors import UserError, nearest
from fedquilt.core.payload import Gather, Mean, Part, Update, weight_of
from fedquilt.core.tree import Tree, leaves, tree_map
from fedquilt.data.client_data import ClientData
from fedquilt.training.aggregation import NEGLIGIBLE
from fedquilt.training.client import LOSS_PART
from fedquilt.training.method import Method, State
from fedquilt.training.provenance import CellRule, OneRule, Provenance, images_of, patients_of


def small_cells(part: str, method: Method, data: ClientData, state: State, min_cell: int) -> Tree:
    """(cells...) bool, for the whole part or by its leaves; a cell without any patient is small."""

    def small(rule: CellRule) -> Tensor:
        rules = rule if isinstance(rule, tuple) else (rule,)
        together = torch.zeros((), dtype=torch.bool)
        for each in rules:
            people = patients_of(_images(each, method, data, state), data)
            few = people < min_cell
            if each != "sides":  # where no positives are few: nobody is to tell the two apart
                few = few & (people > 0)
            together = together | few.any(-1) | (people == 0).all(-1)
        return together

    declared = cells_of(part, method)
    if isinstance(declared, Mapping):
        return {leaf: small(rule) for leaf, rule in declared.items()}
    return small(declared)


def cells_of(part: str, method: Method) -> Provenance:
    """What the part tells of, by the method; nothing leaves a site that is not declared."""
    declared: dict[str, Provenance] = {**method.provenance, LOSS_PART: "images"}
    if part not in declared:
        raise UserError(
            f"{type(method).__name__} does not say how many patients its part {part!r} tells of, "
            f"so a disclosure floor cannot let it out{nearest(part, declared)}; declare it in the "
            "method's provenance, or set min_cell = 0"
        )
    return declared[part]


def require_enough_patients(data: ClientData, min_cell: int) -> None:
    """Below the floor the whole client is one small cell, its model included."""
    people = int(patients_of(images_of("images", data), data))
    if people < min_cell:
        what = "images" if data.patients is None else "patients"
        raise UserError(
            f"client {data.name!r} has {people} {what}, and min_cell = {min_cell}: nothing that it "
            "could send tells of enough; leave it out, or lower min_cell"
        )


def speaking_rows(leaf: Tensor) -> Tensor:
    """(rows,) bool: whether a row has anything but zeros."""
    return (leaf != 0).reshape(len(leaf), math.prod(leaf.shape[1:])).any(1)


def _images(rule: OneRule, method: Method, data: ClientData, state: State) -> Tensor:
    if callable(rule):
        return rule(data, state).cpu()
    filled_in = method.pseudo_labels(state) if rule == "believed positives" else None
    return images_of(rule, data, None if filled_in is None else filled_in.cpu())


DEFAULT_MIN_CELL = 10


@dataclass(frozen=True)
class DisclosureFloor:
    """A payload transform that sets small cells to 0, values and weights alike.

    Small means: fewer than ``min_cell`` patients, or images where patients are not told. A class
    with few or no patients on one side loses both sides, for one gives away the other. So from
    outside, none and few look the same. 0 and 1 leave everything as it is.
    """

    min_cell: int = DEFAULT_MIN_CELL

    def __post_init__(self) -> None:
        if self.min_cell < 0:
            raise UserError(f"min_cell must be 0 or more, found {self.min_cell}")

    def on_client(self, method: Method, data: ClientData, state: State, update: Update) -> Update:
        if self.min_cell <= 1:
            return update
        require_enough_patients(data, self.min_cell)
        return {
            name: suppressed(part, small_cells(name, method, data, state, self.min_cell))
            for name, part in update.items()
        }

    def on_survey(self, method: Method, data: ClientData, answer: Update) -> Update:
        return self.on_client(method, data, {}, answer)


def suppressed(part: Part, small: Tree) -> Part:
    """The part with 0 in its small cells."""
    if isinstance(part, Gather) and part.any_length:
        return _records(part, small)
    if not isinstance(part, Mean):
        return replace(part, value=_emptied(part.value, small))
    if isinstance(small, Mapping):
        raise ValueError("the cells of a Mean must be the same for all of its tensors")
    weight = weight_of(part)
    if small.ndim > weight.ndim:  # one weight for several cells: it stays with the others
        return Mean(_emptied(part.value, small), weight)
    # A mean over a cohort of nobody has no value, so a part that is one cell keeps a trace.
    nothing = NEGLIGIBLE if weight.ndim == 0 else 0.0
    gone = _over_leading(small, weight)
    return Mean(_emptied(part.value, small), torch.where(gone, nothing, weight))


def _records(part: Gather, small: Tree) -> Gather:
    """Rows are records, and cells run over what comes after; a record left empty is left out."""
    value = _emptied(part.value, tree_map(lambda cells: cells[None], small))
    told, left = (
        torch.stack([speaking_rows(leaf) for _, leaf in leaves(tree)])
        for tree in (part.value, value)
    )
    keep = (left == told).all(0)
    return replace(part, value=tree_map(lambda leaf: leaf[keep], value))


def _emptied(value: Tree, small: Tree) -> Tree:
    if isinstance(small, Tensor):
        cells = small
        return tree_map(lambda leaf: _without(leaf, cells), value)  # type: ignore[no-any-return]
    return tree_map(_without, value, small)  # type: ignore[no-any-return]


def _without(leaf: Tensor, small: Tensor) -> Tensor:
    return leaf.masked_fill(_over_leading(small, leaf), 0)


def _over_leading(small: Tensor, leaf: Tensor) -> Tensor:
    return small.reshape(small.shape + (1,) * (leaf.ndim - small.ndim)).to(leaf.device)
