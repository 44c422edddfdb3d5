"""Compact payloads on every engine, with bounds and ring sums, resumed, and as bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from support.engine_agreement import with_sgd
from support.remote_sites import make_clients
from support.tiny_federation import Federation, make_method

from fedquilt.core.aggregation_rules import AggregationRules
from fedquilt.core.bounds import Bounds
from fedquilt.core.compact_payload import PayloadOptions
from fedquilt.core.tree import byte_count, leaves, same_bits
from fedquilt.engines.client_states import StatesInMemory
from fedquilt.engines.cuda_graph.engine import CudaGraphEngine
from fedquilt.engines.sequential import UNSENT, SequentialEngine
from fedquilt.engines.threaded import ThreadedEngine
from fedquilt.methods import METHODS
from fedquilt.training.method import Method, State
from fedquilt.training.rounds import Round, run_rounds, start_server

COMPACT = PayloadOptions(numbers="int8", top_share=0.2)
every_kind = pytest.mark.parametrize("name", ["fedavg-pl", "scaffold", "fedmlp", "fedlsm"])


def _rounds(method: Method, federation: Federation, engine: Any, **where: Any) -> list[Round]:
    server: State = where.pop("server", None) or start_server(method, federation.task, engine)
    return list(run_rounds(method, federation.task, engine, server, **where))


def _sequential(federation: Federation, rules: AggregationRules) -> SequentialEngine:
    return SequentialEngine(federation.task, federation.clients, rules=rules)


@every_kind
def test_every_engine_ends_with_the_same_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method = with_sgd(make_method(name))
    federation = make_clients(method, rounds=2)
    rules = AggregationRules(payload=COMPACT, summation="ring", bounds=Bounds(beyond="clip"))
    expected = _rounds(method, federation, _sequential(federation, rules))[-1].server
    given: dict[str, Any] = {"device": "cpu", "slots": 2, "channels_last": False, "exact": True}
    graphs = CudaGraphEngine(federation.task, federation.clients, **given, rules=rules)
    assert same_bits(_rounds(method, federation, graphs)[-1].server, expected)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    threaded = ThreadedEngine(federation.task, federation.clients, rules=rules)
    assert same_bits(_rounds(method, federation, threaded)[-1].server, expected)


@pytest.mark.parametrize("name", ["fedavg-pl", "scaffold", "fedprox"])  # without pseudo-labels
def test_fewer_bytes_go_up_and_the_model_moves_alike(name: str) -> None:
    method = with_sgd(make_method(name))
    federation = make_clients(method, rounds=3)
    plain = _rounds(method, federation, federation.engine())
    rules = AggregationRules(payload=PayloadOptions(numbers="int8"))
    compact = _rounds(method, federation, _sequential(federation, rules))
    assert compact[0].bytes_up < plain[0].bytes_up
    assert compact[0].bytes_down == plain[0].bytes_down
    first, last = plain[0].server["weights"], plain[-1].server["weights"]
    other = compact[-1].server["weights"]
    for weight in last:
        moved = float((last[weight] - first[weight]).norm())
        assert float((other[weight] - last[weight]).norm()) <= 0.1 * moved + 1e-5, weight


def test_a_resumed_run_still_knows_what_was_not_sent() -> None:
    method = make_method("fedavg-pl")
    federation = make_clients(method, rounds=4)
    rules = AggregationRules(payload=COMPACT)
    expected = _rounds(method, federation, _sequential(federation, rules))
    states = StatesInMemory()

    def engine() -> SequentialEngine:
        return SequentialEngine(federation.task, federation.clients, states=states, rules=rules)

    short = replace(federation, task=replace(federation.task, round_count=2))
    half = _rounds(method, short, engine())[-1]
    kept = {name: states.get(name)[UNSENT] for name in federation.clients}
    for unsent in kept.values():
        assert {*unsent} == {"body", "head"}
        assert all(float(lost.abs().sum()) > 0 for _, lost in leaves(unsent["body"]))
    resumed = engine()
    resumed.norms = half.bounds.norms
    later = _rounds(method, federation, resumed, server=half.server, first_round=2)
    assert same_bits(later[-1].server, expected[-1].server)


FIXED = {"fedlgt": 3, "scene-gcn": 1}  # buffers that no training changes


@pytest.mark.parametrize("name", FIXED)
def test_fixed_buffers_need_not_travel_and_change_no_bit(name: str) -> None:
    method = with_sgd(make_method(name))
    federation = make_clients(method, rounds=2)
    unsent = replace(federation, task=replace(federation.task, sends_fixed=False))
    plain = _rounds(method, federation, federation.engine())
    fewer = _rounds(method, unsent, unsent.engine())
    assert same_bits(fewer[-1].server, plain[-1].server)
    size = byte_count(unsent.task.fixed_buffers)
    assert len(unsent.task.fixed_buffers) == FIXED[name]
    assert plain[0].bytes_down - fewer[0].bytes_down == size * len(federation.clients)
    weight = 8  # of the part of buffers, in which nothing else was
    assert plain[0].bytes_up - fewer[0].bytes_up == (size + weight) * len(federation.clients)


def test_what_a_network_calls_fixed_no_training_changes() -> None:
    for name in METHODS:
        method = make_method(name)
        federation = make_clients(method, rounds=2)
        task = replace(federation.task, sends_fixed=False)
        if task.fixed_buffers:
            server = _rounds(method, federation, federation.engine())[-1].server
            after = {name: server["weights"][name] for name in task.fixed_buffers}
            assert same_bits(after, task.fixed_buffers)
