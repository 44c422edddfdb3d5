"""StateCache: which tier a state takes, and when the store receives it."""

from __future__ import annotations

import pytest
import torch

from fedquilt.engines.client_states import StatesInMemory
from fedquilt.engines.cuda_graph.state_cache import StateCache
from fedquilt.training.method import State

CPU = torch.device("cpu")


def _state(value: float, numbers: int = 4) -> State:
    return {"method": {"a": torch.full((numbers,), value)}}  # 4 bytes a number


def _cache(store: StatesInMemory, device_bytes: int, host_bytes: int) -> StateCache:
    return StateCache(store, CPU, device_bytes=device_bytes, host_bytes=host_bytes)


def _first(state: State) -> float:
    return float(state["method"]["a"][0])


def test_the_store_receives_states_only_on_flush() -> None:
    store = StatesInMemory()
    cache = _cache(store, device_bytes=1000, host_bytes=0)
    cache.put("one", _state(1.0))
    cache.put("one", _state(2.0))
    assert store.get("one") == {}
    assert _first(cache.get("one")) == 2.0
    cache.flush()
    assert _first(store.get("one")) == 2.0


def test_a_full_device_spills_to_the_host_and_then_to_the_store() -> None:
    store = StatesInMemory()
    cache = _cache(store, device_bytes=20, host_bytes=16)  # a state takes 16 bytes
    for client, value in (("a", 1.0), ("b", 2.0), ("c", 3.0)):
        cache.put(client, _state(value))
    assert [cache._cached[client][0] for client in ("a", "b")] == ["device", "host"]
    assert _first(store.get("c")) == 3.0  # fits nowhere: written at once
    assert [_first(cache.get(client)) for client in "abc"] == [1.0, 2.0, 3.0]
    cache.flush()
    assert [_first(store.get(client)) for client in "abc"] == [1.0, 2.0, 3.0]


def test_memory_is_freed_when_a_state_is_replaced() -> None:
    cache = _cache(StatesInMemory(), device_bytes=16, host_bytes=0)
    for value in range(5):
        cache.put("a", _state(float(value)))
        assert cache._cached["a"][0] == "device"
    assert _first(cache.get("a")) == 4.0


def test_a_state_that_outgrew_its_tier_is_read_from_the_store() -> None:
    store = StatesInMemory()
    cache = _cache(store, device_bytes=16, host_bytes=0)
    cache.put("a", _state(1.0))
    cache.put("a", _state(2.0, numbers=5))
    assert _first(cache.get("a")) == 2.0
    cache.flush()
    assert _first(store.get("a")) == 2.0


@pytest.mark.parametrize(("device_bytes", "host_bytes"), [(1000, 0), (0, 1000), (0, 0)])
def test_the_memory_format_of_the_device_does_not_reach_the_store(
    device_bytes: int, host_bytes: int
) -> None:
    store = StatesInMemory()
    cache = _cache(store, device_bytes, host_bytes)
    kernel = torch.arange(24.0).reshape(1, 2, 3, 4)
    on_device = kernel.to(memory_format=torch.channels_last)
    cache.put("a", {"method": {"kernel": on_device}})
    if device_bytes or host_bytes:  # copies between equal formats are fused
        assert cache.get("a")["method"]["kernel"].stride() == on_device.stride()
    cache.flush()
    found = store.get("a")["method"]["kernel"]
    assert found.is_contiguous()
    assert torch.equal(found, kernel)


def test_an_uncached_state_comes_from_the_store() -> None:
    store = StatesInMemory()
    store.put("a", _state(7.0))
    cache = _cache(store, device_bytes=16, host_bytes=0)
    assert _first(cache.get("a")) == 7.0
    assert cache.get("b") == {}
