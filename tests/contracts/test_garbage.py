"""A round leaves no reference cycles, so garbage collection can be paused meanwhile."""

from __future__ import annotations

import gc
from dataclasses import dataclass

import pytest
from support.tiny_federation import METHOD_NAMES, make_federation, make_method
from torch import Tensor

from fedquilt.data.batches import Batch
from fedquilt.engines.cuda_graph.engine import CudaGraphEngine
from fedquilt.methods.fedavg import FedAvg
from fedquilt.training.method import Local, Method
from fedquilt.training.rounds import start_server

WAS_ON: list[bool] = []


def _found_after_a_round(method: Method) -> list[str]:
    """Return the types of objects in cycles after a fourth round; earlier ones fill caches."""
    federation = make_federation(annotated=((0,), (1,), (2,), (0, 1))).fitted(method)
    engine = CudaGraphEngine(federation.task, federation.clients, device="cpu", slots=2)
    server, cohort = start_server(method, federation.task, engine), sorted(federation.clients)
    for round_index in range(3):
        totals = engine.exchange(method, method.broadcast(server), round_index, cohort)
        server = method.update(server, totals)
    payload = method.broadcast(server)
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        engine.exchange(method, payload, 3, cohort)
        gc.collect()
        return [type(found).__name__ for found in gc.garbage]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@dataclass(frozen=True, kw_only=True)
class Circular(FedAvg):
    """Leaves a cycle at every step, and notes whether the collector is on."""

    def loss(self, local: Local, batch: Batch) -> Tensor:
        WAS_ON.append(gc.isenabled())
        cycle: list[object] = [batch.rows]
        cycle.append(cycle)
        return super().loss(local, batch)


@dataclass(frozen=True, kw_only=True)
class NotCapturable(Circular):
    def loss(self, local: Local, batch: Batch) -> Tensor:
        assert local.round_index >= 0
        return super().loss(local, batch)


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_a_round_leaves_no_cycles(name: str) -> None:
    assert _found_after_a_round(make_method(name)) == []


def test_a_cycle_would_be_found() -> None:
    assert "list" in _found_after_a_round(Circular())


@pytest.mark.parametrize(("method", "is_on"), [(Circular(), False), (NotCapturable(), True)])
def test_collection_is_paused_only_if_steps_are_captured(method: Method, is_on: bool) -> None:
    federation = make_federation()
    engine = CudaGraphEngine(federation.task, federation.clients, device="cpu", slots=2)
    server, cohort = start_server(method, federation.task, engine), sorted(federation.clients)
    for round_index in range(2):
        WAS_ON.clear()
        engine.exchange(method, method.broadcast(server), round_index, cohort)
        assert gc.isenabled()
    assert set(WAS_ON) == {is_on}
