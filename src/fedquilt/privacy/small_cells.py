"""Which cells of a part tell of fewer patients than a site's floor."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from fedquilt.cells import CellRule, OneRule, TellsOf, images_behind, people_behind
from fedquilt.client import LOSS_PART
from fedquilt.data.client_data import ClientData
from fedquilt.errors import UserError, nearest
from fedquilt.method import Method, State
from fedquilt.tree import Tree


def small_cells(part: str, method: Method, data: ClientData, state: State, min_cell: int) -> Tree:
    """(cells...) bool, for the whole part or by its leaves; a cell without any patient is small."""

    def small(rule: CellRule) -> Tensor:
        rules = rule if isinstance(rule, tuple) else (rule,)
        together = torch.zeros((), dtype=torch.bool)
        for each in rules:
            people = people_behind(_images(each, method, data, state), data)
            few = people < min_cell
            if each != "sides":  # where no positives are few: nobody is to tell the two apart
                few = few & (people > 0)
            together = together | few.any(-1) | (people == 0).all(-1)
        return together

    declared = cells_of(part, method)
    if isinstance(declared, Mapping):
        return {leaf: small(rule) for leaf, rule in declared.items()}
    return small(declared)


def cells_of(part: str, method: Method) -> TellsOf:
    """What the part tells of, by the method; nothing leaves a site that is not declared."""
    declared: dict[str, TellsOf] = {**method.tells_of, LOSS_PART: "images"}
    if part not in declared:
        raise UserError(
            f"{type(method).__name__} does not say how many patients its part {part!r} tells of, "
            f"so a disclosure floor cannot let it out{nearest(part, declared)}; declare it in the "
            "method's tells_of, or set min_cell = 0"
        )
    return declared[part]


def require_enough_patients(data: ClientData, min_cell: int) -> None:
    """Below the floor the whole client is one small cell, its model included."""
    people = int(people_behind(images_behind("images", data), data))
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
    return images_behind(rule, data, None if filled_in is None else filled_in.cpu())
