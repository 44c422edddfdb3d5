"""A new global model replaces the old one only if it is finite and of a sane size."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from support.tiny_federation import make_federation, make_method

from fedquilt.core.aggregation_rules import AggregationRules
from fedquilt.core.bounds import Bounds
from fedquilt.core.tree import same_bits
from fedquilt.engines.sequential import SequentialEngine
from fedquilt.methods.fedavg_pl import FedAvgPL
from fedquilt.training.method import State
from fedquilt.training.model_checks import RefusedModel, growth_fault, model_fault
from fedquilt.training.rounds import run_rounds, start_server

TASK = make_federation().task


def weights(value: float) -> dict[str, torch.Tensor]:
    """All weights of the network, with a norm of ``value`` in the trained ones."""
    first, *others = TASK.layout.body + TASK.layout.head
    values = {name: torch.zeros(2) for name in others}
    return {first: torch.tensor([value, 0.0]), **values}


def test_a_model_may_grow_a_hundredfold_and_no_further() -> None:
    assert growth_fault(TASK, weights(3.0), weights(300.0)) is None
    fault = growth_fault(TASK, weights(3.0), weights(301.0))
    assert fault == "the norm of its weights went from 3 to 301"
    assert growth_fault(TASK, weights(0.0), weights(100.0)) is None  # from almost nothing


def test_batch_norm_statistics_may_grow() -> None:
    task = make_federation(backbone="small-resnet").task
    name = task.layout.buffers[0]
    old, new = ({name: torch.full((4,), value)} for value in (1.0, 1e6))
    assert growth_fault(task, old, new) is None


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_was_finite_must_stay_finite(bad: float) -> None:
    old: State = {"weights": weights(1.0), "limit": torch.tensor(math.inf)}
    assert model_fault(TASK, old, old) is None  # infinite from the start, by the method's choice
    new = {**old, "prototypes": torch.tensor([bad])}
    assert model_fault(TASK, old, new) == "prototypes is no longer finite"


def test_a_model_that_cannot_be_right_ends_the_run_before_it_replaces_the_old_one() -> None:
    """Accepting any norm, one client's 1e30 would be the model; its name is in the error."""

    class Exploding(FedAvgPL):
        def finish(self, local: Any, values: Any, steps: int) -> Any:
            update, state = super().finish(local, values, steps)
            if local.data.name == "site-1" and local.round_index == 1:
                body = update["body"]
                spoilt = {name: leaf + 1e8 for name, leaf in body.value.items()}
                update = {**update, "body": replace(body, value=spoilt)}
            return update, state

    method = Exploding(training=make_method("fedavg-pl").training)
    federation = make_federation()
    rules = AggregationRules(bounds=Bounds(norm_factor=1e12))
    engine = SequentialEngine(federation.task, federation.clients, rules=rules)
    server = start_server(method, federation.task, engine)
    rounds = run_rounds(method, federation.task, engine, server)
    first = next(rounds)
    kept = {name: leaf.clone() for name, leaf in first.server["weights"].items()}
    with pytest.raises(RefusedModel, match=r"round 2 gave a model.*'body' of 'site-1'.*times"):
        next(rounds)
    assert same_bits(first.server["weights"], kept)


def test_a_run_goes_on_without_a_client_beyond_its_bounds() -> None:
    """The same rounds as if that client had not been asked in the second."""

    class Growing(FedAvgPL):
        def finish(self, local: Any, values: Any, steps: int) -> Any:
            update, state = super().finish(local, values, steps)
            if local.data.name == "site-1" and local.round_index == 1:
                body = update["body"]
                spoilt = {name: leaf * 100 for name, leaf in body.value.items()}
                update = {**update, "body": replace(body, value=spoilt)}
            return update, state

    method = Growing(training=make_method("fedavg-pl").training)
    federation = make_federation()
    engine = federation.engine()
    server = start_server(method, federation.task, engine)
    rounds = [*run_rounds(method, federation.task, engine, server)]
    assert [round_.cohort for round_ in rounds] == [
        ("site-0", "site-1", "site-2"),
        ("site-0", "site-2"),
        ("site-0", "site-1", "site-2"),
    ]
    assert "'body': its norm of" in rounds[1].bounds.refused["site-1"]
    assert rounds[0].bounds.refused == rounds[2].bounds.refused == {}
