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
from fedquilt.training.averaging import NEGLIGIBLE
from fedquilt.training.client import LOSS_PART
from fedquilt.training.method import Method, State
from fedquilt.training.provenance import GroupRule, OneRule, Provenance, images_of, patients_of

DEFAULT_MIN_CELL = 10


@dataclass(frozen=True)
class DisclosureFloor:
    """A payload transform that sets the values and weights of small groups to 0.

    A group is small if it has fewer than ``min_cell`` patients, or images if no patient ids are
    given. A class with few or no patients on one side (positive or negative) loses both sides,
    as one reveals the other. So the server cannot tell none from few. 0 and 1 change nothing.
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
            name: part
            if not isinstance(part, Gather) and part.has_noise
            else suppress(part, small_groups(name, method, data, state, self.min_cell))
            for name, part in update.items()
        }

    def on_survey(self, method: Method, data: ClientData, answer: Update) -> Update:
        return self.on_client(method, data, {}, answer)


def require_enough_patients(data: ClientData, min_cell: int) -> None:
    """Raise UserError if the whole client is one small group: even its model must not leave."""
    people = int(patients_of(images_of("images", data), data))
    if people < min_cell:
        what = "images" if data.patients is None else "patients"
        raise UserError(
            f"client {data.name!r} has {people} {what}, and min_cell = {min_cell}: everything it "
            "could send is computed from too few; leave it out, or lower min_cell"
        )


def small_groups(part: str, method: Method, data: ClientData, state: State, min_cell: int) -> Tree:
    """Return (groups...) bool, for the whole part or per leaf; an empty group counts as small."""

    def is_small(rule: GroupRule) -> Tensor:
        rules = rule if isinstance(rule, tuple) else (rule,)
        small = torch.zeros((), dtype=torch.bool)
        for each in rules:
            people = patients_of(_images(each, method, data, state), data)
            few = people < min_cell
            if each != "sides":  # there, no positives must look like few
                few = few & (people > 0)
            small = small | few.any(-1) | (people == 0).all(-1)
        return small

    declared = provenance_of(part, method)
    if isinstance(declared, Mapping):
        return {leaf: is_small(rule) for leaf, rule in declared.items()}
    return is_small(declared)


def provenance_of(part: str, method: Method) -> Provenance:
    """Return what the method declares; raise UserError if it declares nothing for the part."""
    declared: dict[str, Provenance] = {**method.provenance, LOSS_PART: "images"}
    if part not in declared:
        raise UserError(
            f"{type(method).__name__} does not say which images its part {part!r} is computed "
            f"from, so a disclosure floor cannot let it out{nearest(part, declared)}; declare it "
            "in the method's provenance, or set min_cell = 0"
        )
    return declared[part]


def _images(rule: OneRule, method: Method, data: ClientData, state: State) -> Tensor:
    if callable(rule):
        return rule(data, state).cpu()
    filled_in = method.pseudo_labels(state) if rule == "positives or pseudo-labels" else None
    return images_of(rule, data, None if filled_in is None else filled_in.cpu())


def suppress(part: Part, small: Tree) -> Part:
    """Return the part with 0 in its small groups."""
    if isinstance(part, Gather) and part.any_length:
        return _suppress_records(part, small)
    if not isinstance(part, Mean):
        return replace(part, value=_zeroed(part.value, small))
    if isinstance(small, Mapping):
        raise ValueError("the groups of a Mean must be the same for all of its tensors")
    weight = weight_of(part)
    if small.ndim > weight.ndim:  # one weight for several groups: the others need it
        return Mean(_zeroed(part.value, small), weight)
    # If no client had weight, the mean would not exist: a part of one group keeps a trace.
    zero = NEGLIGIBLE if weight.ndim == 0 else 0.0
    gone = _over_leading(small, weight)
    return Mean(_zeroed(part.value, small), torch.where(gone, zero, weight))


def _suppress_records(part: Gather, small: Tree) -> Gather:
    """Rows are records, groups are on the later axes; drop records that lose a whole tensor."""
    value = _zeroed(part.value, tree_map(lambda groups: groups[None], small))
    before, after = (
        torch.stack([nonzero_rows(leaf) for _, leaf in leaves(tree)])
        for tree in (part.value, value)
    )
    keep = (after == before).all(0)
    return replace(part, value=tree_map(lambda leaf: leaf[keep], value))


def nonzero_rows(leaf: Tensor) -> Tensor:
    """Return (rows,) bool: whether a row has any value other than 0."""
    return (leaf != 0).reshape(len(leaf), math.prod(leaf.shape[1:])).any(1)


def _zeroed(value: Tree, small: Tree) -> Tree:
    if isinstance(small, Tensor):
        groups = small
        return tree_map(lambda leaf: _masked(leaf, groups), value)  # type: ignore[no-any-return]
    return tree_map(_masked, value, small)  # type: ignore[no-any-return]


def _masked(leaf: Tensor, small: Tensor) -> Tensor:
    return leaf.masked_fill(_over_leading(small, leaf), 0)


def _over_leading(small: Tensor, leaf: Tensor) -> Tensor:
    """Reshape a mask over the leading axes so that it broadcasts over the leaf."""
    return small.reshape(small.shape + (1,) * (leaf.ndim - small.ndim)).to(leaf.device)
