"""No method takes a bad update: it is refused by name, and the totals are as without it."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial

import pytest
import torch
from support.broken_updates import (
    Break,
    with_grown_weight,
    with_norm_times,
    with_one,
    with_other_kind,
    with_other_name,
    with_value,
    with_weight,
    with_weight_shape,
)
from support.tiny_federation import METHOD_NAMES, make_federation, make_method
from torch import Tensor

from fedquilt.core.bounds import Bounds, OutOfBounds
from fedquilt.core.norms import EarlierNorms, norms_by_weight
from fedquilt.core.payload import Mean, Part, Sum, Update, addressed, weight_of
from fedquilt.core.totals import Accumulator, Totals
from fedquilt.core.tree import same_bits
from fedquilt.core.update_checks import RefusedUpdate
from fedquilt.privacy.unannotated_rows import annotator_parts, check_unannotated_rows
from fedquilt.training.agreed_bounds import round_bounds, weight_limit
from fedquilt.training.client import LOSS_PART, Workspace, run_client
from fedquilt.training.method import Method
from fedquilt.training.rounds import expected_update, start_server
from fedquilt.training.task import Task

BAD = "site-1"  # which annotates class 1 only
# These send nothing in which annotators alone have a say, whatever their settings.
WITHOUT_ANNOTATORS_ROWS = {"local-only", "flexible-fl", "rscfed", "spherefed", "fednca-ml"}


@dataclass(frozen=True)
class Exchange:
    """A round's honest updates, and what the server expects."""

    method: Method
    expected: Update
    updates: dict[str, Update]
    declared: dict[str, Tensor]
    task: Task
    images: dict[str, int]

    def totals(self, *senders: tuple[str, Update]) -> Totals:
        accumulator = self.accumulator()
        for client, update in senders:
            with suppress(OutOfBounds):  # the totals name it
                accumulator.add(client, update)
        return accumulator.totals()

    def accumulator(self) -> Accumulator:
        bounds = round_bounds(
            Bounds(), self.method, self.task, 1, before=EarlierNorms(), images=self.images.get
        )
        return Accumulator(self.expected, len(self.updates), self.further_check, bounds)

    def further_check(self, client: str, update: Update) -> None:
        check_unannotated_rows(self.method, update, self.declared[client], client)


@cache
def exchange(name: str) -> Exchange:
    """Two rounds into a run, so that staged methods send all of their parts."""
    annotators = {} if name == "rscfed" else {"head_rows": "annotators"}
    method = make_method(name, **annotators)
    federation = make_federation(backbone="small-resnet").fitted(method)
    task = federation.task
    server = start_server(method, task, federation.engine())
    payload = method.broadcast(server)
    workspace = Workspace.of(task, torch.device("cpu"))
    updates = {
        client: run_client(method, task, workspace, data, addressed(payload, client), {}, 1)[0]
        for client, data in federation.clients.items()
    }
    expected = expected_update(method, payload, BAD, task)
    declared = {client: data.known.any(0) for client, data in federation.clients.items()}
    images = {client: len(data) for client, data in federation.clients.items()}
    return Exchange(method, expected, updates, declared, task, images)


PARTS: dict[str, tuple[Break, str]] = {
    "NaN": (partial(with_one, math.nan), "holds NaN or infinite numbers"),
    "infinity": (partial(with_one, math.inf), "holds NaN or infinite numbers"),
    "minus infinity": (partial(with_one, -math.inf), "holds NaN or infinite numbers"),
    "shape": (
        lambda part: with_value(part, lambda leaf: leaf[None]),
        r"expected torch.float\d\d of shape",
    ),
    "dtype": (
        lambda part: with_value(part, lambda leaf: leaf.to(torch.bfloat16)),
        "found torch.bfloat16",
    ),
    "kind": (with_other_kind, "expected a (Mean|Sum|Gather), found a"),
    "name": (with_other_name, "names differ"),
    "negative weight": (partial(with_weight, -1.0), "finite and not negative|NaN or infinite"),
    "NaN weight": (partial(with_weight, math.nan), "finite and not negative|NaN or infinite"),
    "infinite weight": (partial(with_weight, math.inf), "finite and not negative|NaN or infinite"),
    "huge weight": (partial(with_weight, 1e30), r"a weight of 1e\+30 is above the limit 1e\+09"),
    "weight of 1e9": (with_grown_weight, r"a weight of 1e\+09 is above \d+, the most"),
    "weight of another shape": (with_weight_shape, "expected a weight of shape"),
}


@pytest.mark.parametrize("case", PARTS)
@pytest.mark.parametrize("name", METHOD_NAMES)
def test_a_bad_part_is_refused(name: str, case: str) -> None:
    breaks, reason = PARTS[case]
    tried = 0
    for part, good in exchange(name).updates[BAD].items():
        for bad in breaks(good):
            assert_refused(name, {**exchange(name).updates[BAD], part: bad}, f"{part!r}.*{reason}")
            tried += 1
    assert tried > 0


TOO_LARGE: dict[str, Break] = {
    "1e38": partial(with_one, 1e38),
    "norm x 100": partial(with_norm_times, 100.0),
}


@pytest.mark.parametrize("case", TOO_LARGE)
@pytest.mark.parametrize("name", METHOD_NAMES)
def test_a_part_far_larger_than_the_others_is_refused(name: str, case: str) -> None:
    """A hundredfold loss, or square of a gradient, may be honest, as after learning by heart."""
    here = exchange(name)
    hundredfold = case == "norm x 100"
    exempt = {LOSS_PART, *here.method.squared_parts} if hundredfold else set()
    for part, good in here.updates[BAD].items():
        for bad in TOO_LARGE[case](good):
            if part in exempt or not counts(bad) or getattr(good, "is_weight", False):
                continue
            totals = here.totals(
                ("site-0", here.updates["site-0"]),
                (BAD, {**here.updates[BAD], part: bad}),
                ("site-2", here.updates["site-2"]),
            )
            reason = totals.bounds.refused[BAD]
            assert f"client {BAD!r}, part {part!r}: its norm of" in reason
            assert_same(totals, undisturbed(name))


def counts(part: Part) -> bool:
    """Whether the changed entries of the part weigh anything."""
    return bool((norms_by_weight(part) > 1e30).any()) or bool((norms_by_weight(part) > 0).all())


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_honest_weights_are_within_their_limits(name: str) -> None:
    here = exchange(name)
    for client, update in here.updates.items():
        for part, sent in update.items():
            if isinstance(sent, Mean):
                limit = weight_limit(here.method, here.task, 1, part, here.images[client])
                assert float(weight_of(sent).max()) <= limit, (client, part)


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_missing_and_unexpected_parts_are_refused(name: str) -> None:
    good = exchange(name).updates[BAD]
    for part in good:
        fewer = {key: value for key, value in good.items() if key != part}
        assert_refused(name, fewer, rf"wrong parts: missing \['{part}'\], unexpected \[\]")
    more = {**good, "extra": Sum(torch.zeros(()))}
    assert_refused(name, more, r"wrong parts: missing \[\], unexpected \['extra'\]")


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_an_update_without_weight_is_refused(name: str) -> None:
    """From every client, it would leave a mean over nothing."""
    good = exchange(name).updates[BAD]
    must_count = [part for part in ("body", "buffers", LOSS_PART, "images") if part in good]
    for part in must_count:
        for bad in with_weight(0.0, good[part]):
            assert_refused(name, {**good, part: bad}, f"{part!r}: its weight is 0")
    silent = {
        part: next(iter(with_weight(0.0, value)), value)
        if not isinstance(value, Mean)
        else Mean(value.value, torch.zeros_like(weight_of(value)))
        for part, value in good.items()
    }
    assert_refused(name, silent, "its weight is 0")


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_a_client_counts_once(name: str) -> None:
    updates = exchange(name).updates
    accumulator = exchange(name).accumulator()
    accumulator.add("site-0", updates["site-0"])
    with pytest.raises(RefusedUpdate, match="'site-0' was already counted in this round"):
        accumulator.add("site-0", updates[BAD])
    accumulator.add("site-2", updates["site-2"])
    assert_same(accumulator.totals(), undisturbed(name))


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_a_row_of_a_class_the_site_does_not_annotate_is_refused(name: str) -> None:
    good = exchange(name).updates[BAD]
    rows = [part for part in annotator_parts(exchange(name).method) if part in good]
    assert (not rows) == (name in WITHOUT_ANNOTATORS_ROWS)
    for part in rows:
        bad = good[part]
        assert isinstance(bad, Mean)
        weight = weight_of(bad).clone()
        assert weight[[0, 2]].sum() == 0
        weight[2] = 5.0
        grown = {**good, part: Mean(bad.value, weight)}
        assert_refused(name, grown, f"{part!r}: it has weight in 1 class .*: number 2")


def assert_refused(name: str, bad: Update, reason: str) -> None:
    """In the middle of a round, with the totals of a round without it."""
    here = exchange(name)
    accumulator = here.accumulator()
    accumulator.add("site-0", here.updates["site-0"])
    with pytest.raises(RefusedUpdate, match=reason) as caught:
        accumulator.add(BAD, bad)
    assert repr(BAD) in str(caught.value)
    accumulator.add("site-2", here.updates["site-2"])
    assert_same(accumulator.totals(), undisturbed(name))


@cache
def undisturbed(name: str) -> Totals:
    updates = exchange(name).updates
    return exchange(name).totals(*((client, updates[client]) for client in ("site-0", "site-2")))


def assert_same(one: Totals, two: Totals) -> None:
    assert same_bits(dict(one.sums), dict(two.sums))
    assert same_bits(dict(one.gathered), dict(two.gathered))
    assert (one.cohort, one.byte_count) == (two.cohort, two.byte_count)


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_honest_updates_are_taken(name: str) -> None:
    """The refusals mean something only if nothing else is refused."""
    totals = exchange(name).totals(*exchange(name).updates.items())
    assert totals.cohort == ("site-0", "site-1", "site-2")
