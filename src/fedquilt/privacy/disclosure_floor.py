"""DisclosureFloor: what tells of fewer than ``min_cell`` patients leaves as if there were none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedquilt.aggregation import FAINT
from fedquilt.data.client_data import ClientData
from fedquilt.errors import UserError
from fedquilt.method import Method, State
from fedquilt.payload import Gather, Mean, Part, Update, weight_of
from fedquilt.privacy.small_cells import require_enough_patients, small_cells, speaking_rows
from fedquilt.tree import Tree, leaves, tree_map

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
    nothing = FAINT if weight.ndim == 0 else 0.0
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
