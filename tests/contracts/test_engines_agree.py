"""Every method ends with the same states on every engine as on the sequential engine."""

from __future__ import annotations

import pytest
import torch
from support.engine_agreement import (
    TOLERANCE,
    comparable_method,
    largest_gap,
    train,
    with_sgd,
)
from support.tiny_federation import METHOD_NAMES, Federation, make_federation, make_method
from torch import nn

from fedquilt.core.tree import leaves, same_bits
from fedquilt.engines.client_states import StatesInMemory
from fedquilt.engines.cuda_graph.engine import CudaGraphEngine
from fedquilt.engines.sequential import SequentialEngine
from fedquilt.engines.threaded import ThreadedEngine
from fedquilt.training.method import Method, State
from fedquilt.training.rounds import run_rounds, start_server

every_method = pytest.mark.parametrize("name", METHOD_NAMES)


def _trained(federation: Federation, method: Method, engine: SequentialEngine) -> State:
    server = start_server(method, federation.task, engine)
    for round_ in run_rounds(method, federation.task, engine, server, cohort_size=3):
        server = round_.server
    return server


def _draws_inside_steps(federation: Federation) -> bool:
    """Dropout draws from one generator, so interleaved clients get other random numbers."""
    modules = federation.task.build_network().modules()
    return any(isinstance(module, nn.Dropout) and module.p > 0 for module in modules)


@every_method
def test_cuda_graph_on_a_cpu_is_the_reference_bit_for_bit(name: str) -> None:
    method = with_sgd(make_method(name))
    federation = make_federation(rounds=3, annotated=((0,), (1,), (2,), (0, 1))).fitted(method)
    slots = 1 if _draws_inside_steps(federation) else 2
    kept, graph_kept = StatesInMemory(), StatesInMemory()
    expected = _trained(federation, method, federation.engine(kept))
    engine = CudaGraphEngine(
        federation.task,
        federation.clients,
        states=graph_kept,
        device="cpu",
        slots=slots,
        channels_last=False,
    )
    assert same_bits(_trained(federation, method, engine), expected)
    assert engine.capture_failure is None
    engine.write_states()
    for client in federation.clients:
        assert same_bits(graph_kept.get(client), kept.get(client))


@every_method
def test_threaded_is_the_reference_bit_for_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method = make_method(name)
    federation = make_federation(rounds=3, annotated=((0,), (1,), (2,), (0, 1))).fitted(method)
    kept, threaded_kept = StatesInMemory(), StatesInMemory()
    expected = _trained(federation, method, federation.engine(kept))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)  # two clients at a time
    engine = ThreadedEngine(federation.task, federation.clients, states=threaded_kept)
    assert same_bits(_trained(federation, method, engine), expected)
    for client in federation.clients:
        assert same_bits(threaded_kept.get(client), kept.get(client))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@every_method
def test_cuda_graph_on_a_gpu_is_close_to_the_reference(name: str) -> None:
    method = comparable_method(name)
    federation = make_federation(rounds=3).fitted(method)
    assert not _draws_inside_steps(federation)  # a GPU draws other random numbers
    expected = train(federation, method, federation.engine())
    engine = CudaGraphEngine(federation.task, federation.clients, device="cuda", exact=True)
    found = train(federation, method, engine)
    assert engine.capture_failure is None
    gap = largest_gap(expected, found)
    if gap > TOLERANCE:  # then at most as far as a change of a last digit moves the reference
        shifted = train(federation, method, federation.engine(), shift=0)
        assert gap < 10 * largest_gap(expected, shifted)


@every_method
def test_layouts_of_the_device_do_not_leave_the_cuda_graph_engine(name: str) -> None:
    method = with_sgd(make_method(name))
    federation = make_federation(rounds=1).fitted(method)
    kept = StatesInMemory()
    engine = CudaGraphEngine(federation.task, federation.clients, states=kept, device="cpu")
    server = _trained(federation, method, engine)
    engine.write_states()
    states = {client: kept.get(client) for client in federation.clients}
    for path, leaf in [*leaves(server), *leaves(states)]:
        assert leaf.is_contiguous(), path
    if not _draws_inside_steps(federation):
        found = dict(leaves(server))
        for path, leaf in leaves(_trained(federation, method, federation.engine())):
            torch.testing.assert_close(found[path], leaf, rtol=1e-3, atol=1e-5)
