"""A part declared once: its first value, the expected update, and the server's default update."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
import torch
from support.tiny_federation import make_federation
from torch import Tensor, tensor

from fedquilt.core.payload import Mean, Sum, Update
from fedquilt.core.totals import Accumulator, Totals
from fedquilt.core.tree import Weights
from fedquilt.training.averaging import WeightedAveraging
from fedquilt.training.method import Local, State
from fedquilt.training.parts import (
    DeclaredPart,
    MeanPart,
    SumPart,
    head_rows_mean,
    per_class_mean,
)
from fedquilt.training.rounds import expected_update, run_rounds, start_server

TASK = make_federation().task
WEIGHTS = {name: torch.ones(()) for name in TASK.layout.names}


def totals_of(expected: Update, *updates: Update) -> Totals:
    accumulator = Accumulator(expected, population=4)
    for number, update in enumerate(updates):
        accumulator.add(f"client {number}", update)
    return accumulator.totals()


def test_shapes_follow_the_task() -> None:
    part = MeanPart(
        shape=("classes", 2, "features"), weight=("classes", 2), provenance="sides", start=0.5
    )
    expected = part.expected(TASK, {})
    assert isinstance(expected, Mean)
    assert isinstance(expected.value, Tensor)
    assert isinstance(expected.weight, Tensor)
    assert expected.value.shape == (TASK.class_count, 2, TASK.feature_count)
    assert expected.weight.shape == (TASK.class_count, 2)
    assert bool((expected.value == 0.5).all())


def test_a_mean_keeps_its_last_value_where_nobody_has_weight() -> None:
    part = per_class_mean("annotated", start=1.0)
    first = part.first_value(TASK, {})
    values = tensor([2.0, 9.0, 9.0]), tensor([8.0, 9.0, 9.0])
    updates = [
        {"share": Mean(values[0], tensor([1.0, 0.0, 0.0]))},
        {"share": Mean(values[1], tensor([2.0, 0.0, 0.0]))},
    ]
    totals = totals_of({"share": part.expected(TASK, {})}, *updates)
    # (1 * 2 + 2 * 8) / 3 = 6; the other classes have no weight and stay at 1.
    assert part.updated("share", first, totals).tolist() == [6.0, 1.0, 1.0]


@pytest.mark.parametrize(("over_population", "expected"), [(False, 16.0), (True, 11.5)])
def test_a_sum_is_added_to_what_the_server_has(over_population: bool, expected: float) -> None:
    part = SumPart(provenance="images", over_population=over_population)
    first = part.first_value(TASK, WEIGHTS)
    assert first.keys() == {*TASK.layout.body, *TASK.layout.head}  # no buffers
    sent = [{"control": Sum({name: tensor(x) for name in first})} for x in (2.0, 4.0)]
    totals = totals_of({"control": part.expected(TASK, WEIGHTS)}, *sent)
    old = {name: tensor(10.0) for name in first}
    # 10 + (2 + 4), or 10 + 6 / 4 with four clients in all.
    found = part.updated("control", old, totals)
    assert {leaf.item() for leaf in found.values()} == {expected}


@dataclass(frozen=True, kw_only=True)
class Counting(WeightedAveraging):
    """Declares two parts and writes no other hook for them than ``finish``."""

    @property
    def parts(self) -> Mapping[str, DeclaredPart]:
        return {
            "share": per_class_mean("sides", start=0.25),
            "spare": head_rows_mean("annotated"),
        }

    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        update = self.weights_update(local, weights)
        counts = local.data.annotated_counts().to(torch.float32)
        spare = Mean(update["head"].value, counts)
        return {**update, "share": Mean(counts / len(local.data), counts), "spare": spare}, {}


def test_everything_follows_from_the_declaration() -> None:
    federation = make_federation(rounds=1)
    method, engine = Counting(), federation.engine()
    server = start_server(method, federation.task, engine)
    assert server["share"].tolist() == [0.25] * federation.task.class_count
    assert "spare" not in server  # it has no first value: used up in the round
    payload = method.broadcast(server)
    assert payload.keys() == {"weights", "share"}
    expected = expected_update(method, payload, "site-0", federation.task)
    assert expected.keys() >= {"body", "head", "share", "spare", "training_loss"}
    assert method.provenance["share"] == "sides"
    (round_,) = run_rounds(method, federation.task, engine, server)
    # Every client annotates its classes on all of its images.
    assert round_.server["share"].tolist() == pytest.approx([1.0] * federation.task.class_count)
