"""what_would_leave(): a report, part by part, of what a method would send under a policy."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Part, Update, update_bytes
from fedquilt.core.totals import Accumulator
from fedquilt.core.tree import leaves, tree_map
from fedquilt.data.client_data import ClientData
from fedquilt.models.network import read_weights
from fedquilt.privacy.disclosure_floor import DisclosureFloor, small_groups
from fedquilt.privacy.site_policy import SitePolicy
from fedquilt.training.client import LOSS_PART
from fedquilt.training.method import Method, State
from fedquilt.training.provenance import images_of, patients_of
from fedquilt.training.rounds import expected_update
from fedquilt.training.task import Task

EVERYTHING = "everything"
LATER = "decided after training"

WEIGHTS = ("body", "head", "buffers")  # a network may have no buffers, or no head rows

When = Literal[
    "once", "every round", "most rounds", "some rounds", "validated rounds", "at the end"
]


@dataclass(frozen=True, kw_only=True)
class LeavingPart:
    """One part of a message; a value of None is not known before training."""

    part: str
    when: When
    kind: str | None  # Sum, Mean or Gather
    tensors: dict[str, tuple[int, ...]] | None  # name (empty for a part of one tensor) -> shape
    numbers: int | None
    bytes: int | None
    suppressed: tuple[str, ...]  # classes whose groups are too small
    refused: str | None  # why the policy forbids it
    is_needed: bool = True  # otherwise a site takes part without it

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def what_would_leave(
    method: Method, data: ClientData, task: Task, policy: SitePolicy
) -> list[LeavingPart]:
    """Return the parts of the survey, then those of a round. Nothing is trained.

    Raise UserError if the whole site is below the floor, or if the policy forbids the method or
    the size of a message.
    """
    refusal = policy.refuses_method(method)
    if refusal:
        raise UserError(refusal)
    asked = method.survey(data)
    answer = DisclosureFloor(policy.min_cell).on_survey(method, data, asked)
    update = _expected(method, task, answer)
    SitePolicy(max_message_bytes=policy.max_message_bytes).check(method, update)
    at_first = {*asked, *update, *WEIGHTS}
    later = dict.fromkeys(name for name in method.provenance if name not in at_first)
    kept = method.init_client(data)
    always = {LOSS_PART: update.pop(LOSS_PART)}
    rows: list[tuple[When, Mapping[str, Part | None], State]] = [
        ("once", asked, {}),
        # Rounds that send the later parts may lack these.
        ("most rounds" if later else "every round", update, kept),
        ("every round", always, kept),
        ("some rounds", later, kept),
    ]
    return [
        _row(name, part, when, _suppressed(name, method, data, state, task, policy), policy)
        for when, parts, state in rows
        for name, part in parts.items()
    ]


def judged_parts(
    update: Update, when: When, data: ClientData, classes: Sequence[str], policy: SitePolicy
) -> list[LeavingPart]:
    """Return parts that leave if the policy lets them, of images that are not trained on.

    Args:
        update: with the names, kinds and shapes of the parts.
        when: the site sends them.
        data: the images that they are computed from.
        classes: of the study.
        policy: of the site.
    """
    names: tuple[str, ...] = ()
    if len(data) and policy.min_cell > 1:
        people = patients_of(images_of("sides", data), data)
        few = (people < policy.min_cell).any(-1) & (people > 0).any(-1)
        names = tuple(_names(few, classes))
    rows = [_row(name, part, when, names, policy) for name, part in update.items()]
    return [replace(row, is_needed=False) for row in rows]


def server_of_one_site(method: Method, task: Task, answer: Update) -> State:
    """Return the server's first state, with a new network, as if this site were the only one."""
    survey = Accumulator(answer, len(task.clients))
    survey.add(task.clients[0], answer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other sites may have the classes missing here
        return method.init_server(read_weights(task.build_network()), task, survey.totals())


def _expected(method: Method, task: Task, answer: Update) -> dict[str, Part]:
    """Return a round's expected update."""
    broadcast = method.broadcast(server_of_one_site(method, task, answer))
    return {**expected_update(method, broadcast, task.clients[0], task)}


def _suppressed(
    part: str, method: Method, data: ClientData, state: State, task: Task, policy: SitePolicy
) -> tuple[str, ...]:
    if policy.min_cell <= 1:
        return ()
    small, empty = (
        small_groups(part, method, data, state, floor) for floor in (policy.min_cell, 0)
    )
    declared = method.provenance.get(part)
    if isinstance(declared, Mapping) and any(callable(rule) for rule in declared.values()):
        return (LATER,)
    withheld = tree_map(lambda few, none: few & ~none, small, empty)
    names = (name for _, groups in leaves(withheld) for name in _names(groups, task.classes))
    return tuple(dict.fromkeys(names))


def _names(small: Tensor, classes: Sequence[str]) -> list[str]:
    if small.ndim == 0:
        return [EVERYTHING] if bool(small) else []
    return [name for name, is_small in zip(classes, small.tolist()) if is_small]


def _row(
    name: str, part: Part | None, when: When, suppressed: tuple[str, ...], policy: SitePolicy
) -> LeavingPart:
    kind, shapes, size = None, None, None
    if part is not None:
        kind, size = type(part).__name__, update_bytes({name: part})
        shapes = {path: tuple(leaf.shape) for path, leaf in leaves(part.value)}
    return LeavingPart(
        part=name,
        when=when,
        kind=kind,
        tensors=shapes,
        numbers=None if shapes is None else sum(math.prod(shape) for shape in shapes.values()),
        bytes=size,
        suppressed=suppressed,
        refused=policy.refuses_part(name),
    )
