"""The threaded engine: same bits and errors as the sequential engine, on several cores."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from support.failing_method import Failing
from support.tiny_federation import Federation, make_federation, make_method
from torch import Tensor, nn

from fedquilt.core.tree import same_bits
from fedquilt.data.batches import Batch
from fedquilt.engines import threaded
from fedquilt.engines.threaded import ClientPool, ThreadedEngine, room_for
from fedquilt.methods.fedavg import FedAvg
from fedquilt.training.client import Interrupted, Workspace
from fedquilt.training.method import Local, Method, State
from fedquilt.training.rounds import run_rounds, start_server

FIVE = ((0,), (1,), (2,), (0, 1), (2,))


@pytest.fixture(autouse=True)
def _two_cores() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def _engine(federation: Federation) -> ThreadedEngine:
    return ThreadedEngine(federation.task, federation.clients)


def _train(federation: Federation, method: Method, engine: ThreadedEngine) -> State:
    server = start_server(method, federation.task, engine)
    for round_ in run_rounds(method, federation.task, engine, server):
        server = round_.server
    return server


def _reference(federation: Federation, method: Method) -> State:
    """Train with the sequential engine, and as many of torch's threads as a pool gives a client."""
    torch.set_num_threads(1)
    server = federation.train(method)
    torch.set_num_threads(2)
    return server


@dataclass(frozen=True, kw_only=True)
class Meeting(FedAvg):
    """From the second round on, a client begins only when another one begins too."""

    def begin(self, local: Local) -> State:
        if local.round_index > 0:
            MEETING.wait(timeout=30)
        return super().begin(local)


@dataclass(frozen=True, kw_only=True)
class Noisy(FedAvg):
    """Draws from torch's global generator inside its steps, at one client only."""

    noisy_client: str = "site-1"

    def loss(self, local: Local, batch: Batch) -> Tensor:
        noise = torch.rand(()) if local.data.name == self.noisy_client else 1.0
        return super().loss(local, batch) * noise


MEETING = threading.Barrier(2)


def test_clients_run_at_the_same_time() -> None:
    federation = make_federation(annotated=((0,), (1, 2)), rounds=3)
    engine = _engine(federation)
    _train(federation, Meeting(), engine)  # one after another, they would break the barrier


def test_bits_are_those_of_the_sequential_engine_with_batch_norm() -> None:
    federation = make_federation(annotated=FIVE, backbone="small-resnet")
    method = make_method("fedmlp")
    assert same_bits(
        _train(federation, method, _engine(federation)), _reference(federation, method)
    )


def test_a_client_that_draws_from_the_global_generator_runs_alone() -> None:
    federation, method = make_federation(annotated=FIVE), Noisy()
    before = torch.default_generator.get_state()
    trained = _train(federation, method, _engine(federation))
    assert same_bits(trained, _reference(federation, method))
    assert torch.equal(torch.default_generator.get_state(), before)


def test_draws_of_a_later_client_are_noticed_too() -> None:
    federation, method = make_federation(annotated=FIVE), Noisy(noisy_client="site-4")
    assert same_bits(
        _train(federation, method, _engine(federation)), _reference(federation, method)
    )


def test_dropout_draws_as_in_the_sequential_engine() -> None:
    federation = make_federation(annotated=FIVE)
    method = make_method("fedlgt")
    fitted = federation.fitted(method)
    assert any(
        isinstance(module, nn.Dropout) and module.p > 0
        for module in fitted.task.build_network().modules()
    )
    assert same_bits(_train(fitted, method, _engine(fitted)), _reference(fitted, method))


def test_a_failure_names_its_client_and_the_engine_stays_usable() -> None:
    federation = make_federation(annotated=FIVE)
    engine = _engine(federation)
    method = make_method("fedavg")
    payload = method.broadcast(start_server(method, federation.task, engine))
    with pytest.raises(RuntimeError, match="the disk is full") as failure:
        engine.exchange(Failing(training=method.training), payload, 4, sorted(federation.clients))
    assert failure.value.__notes__ == ["while client 'site-1' ran Failing, round 4"]
    assert same_bits(_train(federation, method, engine), _reference(federation, method))


def test_an_interrupt_waits_for_one_step_and_not_for_rounds() -> None:
    federation = make_federation(annotated=FIVE)
    method = make_method("fedavg")
    endless = replace(method, training=replace(method.training, steps=10**9))
    engine = _engine(federation)
    payload = method.broadcast(start_server(method, federation.task, engine))
    pool, cohort = ClientPool(engine.workspace, 2, 1), sorted(federation.clients)
    assert list(pool.map_in_order(_echo, [1])) == [1]  # the first item is measured
    running = _engine_with(pool, federation)._run_clients(endless, payload, 0, cohort)
    threading.Timer(0.3, _press_ctrl_c).start()
    with pytest.raises(KeyboardInterrupt):
        next(running)
    assert not engine.workspace.interrupt.is_set()
    assert pool._free.qsize() == 2  # both have stopped
    assert list(pool.map_in_order(_echo, [1, 2, 3])) == [1, 2, 3]


@pytest.mark.parametrize("prefetch", [1, None])
def test_no_client_runs_on_after_an_interrupt(prefetch: int | None) -> None:
    pool = ClientPool(_workspace(), 2, 1)
    assert list(pool.map_in_order(_echo, [1])) == [1]  # the first item is measured

    def run(workspace: Workspace, item: int) -> None:
        while not workspace.interrupt.is_set():
            time.sleep(0.01)
        raise Interrupted

    threading.Timer(0.2, _press_ctrl_c).start()
    with pytest.raises(KeyboardInterrupt):
        next(pool.map_in_order(run, range(5), prefetch=prefetch))
    assert pool._free.qsize() == 2


def _engine_with(pool: ClientPool, federation: Federation) -> ThreadedEngine:
    engine = _engine(federation)
    engine._pool = pool
    return engine


def _echo(workspace: Workspace, item: int) -> int:
    return item


def _press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def _workspace() -> Workspace:
    return Workspace.of(make_federation().task, torch.device("cpu"))


def _busiest(pool: ClientPool, items: Sequence[int]) -> int:
    """Return the largest number of items that ran at a time."""
    now, most, lock = 0, 0, threading.Lock()

    def run(workspace: Workspace, item: int) -> int:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.02)
        with lock:
            now -= 1
        return item

    assert list(pool.map_in_order(run, items)) == list(items)
    return most


def test_the_first_client_runs_alone_to_measure_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(threaded, "room_for", lambda wanted, bytes_each: 1)
    pool = ClientPool(_workspace(), 4, 1)
    assert _busiest(pool, range(1)) == 1
    assert caplog.messages == ["memory is short: 2 of 4 clients at a time"]
    assert _busiest(pool, range(12)) == 2  # of four threads


def test_results_come_in_order_and_only_some_are_prefetched() -> None:
    pool, started = ClientPool(_workspace(), 2, 1), []

    def run(workspace: Workspace, item: int) -> int:
        started.append(item)
        time.sleep(0.001 * (5 - item % 5))
        return item

    results = pool.map_in_order(run, range(40))
    assert next(results) == 0
    assert max(started) <= 4  # twice the threads
    assert list(results) == list(range(1, 40))


def test_an_interrupted_round_ends_before_its_next_step() -> None:
    federation, method = make_federation(), make_method("fedavg")
    engine = federation.engine()  # a pool would not even start it
    payload = method.broadcast(start_server(method, federation.task, engine))
    engine.workspace.interrupt.set()
    with pytest.raises(Interrupted):
        next(engine._run_clients(method, payload, 0, ["site-0"]))


@pytest.mark.parametrize(
    ("bytes_each", "available", "room"),
    [
        (100, 1000, 7),  # 0.7 x 1000 / 100
        (100, 5000, 9),  # no more than wanted
        (2000, 1000, 0),  # the first client runs alone
        (None, 1000, 9),  # not known on this system
        (100, None, 9),
        (0, 1000, 9),
    ],
)
def test_room_for_more_clients(
    bytes_each: int | None, available: int | None, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threaded, "available_bytes", lambda: available)
    assert room_for(9, bytes_each) == room
