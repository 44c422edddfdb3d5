"""States in bfloat16: the same numbers on every engine, half the bytes, and said beforehand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.engine_agreement import with_sgd
from support.remote_sites import make_clients
from support.tiny_federation import Federation, make_method

from fedquilt.core.tree import byte_count, leaves, same_bits
from fedquilt.engines.client_states import HalvedStates, StatesInMemory
from fedquilt.engines.cuda_graph.engine import CudaGraphEngine
from fedquilt.engines.sequential import SequentialEngine
from fedquilt.training.method import Method, State
from fedquilt.training.rounds import run_rounds, start_server


def _trained(method: Method, federation: Federation, engine: SequentialEngine) -> State:
    engine.store_in_bfloat16()
    server = start_server(method, federation.task, engine)
    for round_ in run_rounds(method, federation.task, engine, server):
        server = round_.server
    return server


def test_large_float32_tensors_are_rounded_to_nearest_and_others_kept() -> None:
    behind = StatesInMemory()
    states = HalvedStates(behind)
    large = torch.full((64,), 1 + 2.0**-9)  # between 1 and 1 + 2^-7, nearer to 1
    kept = {"w": large, "small": large[:3], "tags": torch.ones(64, dtype=torch.int8)}
    states.put("a", {"method": kept})
    assert byte_count(behind.get("a")) == 64 * 2 + 3 * 4 + 64
    found = states.get("a")["method"]
    assert found["w"].dtype == torch.float32
    assert found["w"].tolist() == [1.0] * 64
    assert all(same_bits(found[name], kept[name]) for name in ("small", "tags"))
    assert states.get("b") == {}


@pytest.mark.parametrize("name", ["scaffold", "fedmlp"])
def test_caching_a_state_changes_no_bit(name: str) -> None:
    """On the CUDA graph engine a state is cached on the device or read from the store."""
    method = with_sgd(make_method(name))
    federation = make_clients(method, rounds=3)
    expected = _trained(method, federation, federation.engine())
    given: dict[str, Any] = {"device": "cpu", "slots": 2, "channels_last": False, "exact": True}
    for room in (0, 2**30):
        states = StatesInMemory()
        engine = CudaGraphEngine(
            federation.task, federation.clients, **given, states=states, device_state_bytes=room
        )
        assert same_bits(_trained(method, federation, engine), expected)


def test_scaffold_keeps_half_the_bytes_and_ends_nearby() -> None:
    method = with_sgd(make_method("scaffold"))
    federation = make_clients(method, rounds=3)
    whole, half = StatesInMemory(), StatesInMemory()
    plain = federation.engine(whole)
    server = start_server(method, federation.task, plain)
    for round_ in run_rounds(method, federation.task, plain, server):
        server = round_.server
    halved = _trained(method, federation, federation.engine(half))
    one, other = byte_count(whole.get("site-0")), byte_count(half.get("site-0"))
    assert other < 0.52 * one
    for (path, first), (_, second) in zip(leaves(server["weights"]), leaves(halved["weights"])):
        torch.testing.assert_close(first, second, rtol=1e-2, atol=1e-3, msg=path)
