"""States in front of a store: which tier they take, and when the store gets them."""

from __future__ import annotations

import pytest
import torch

from fedquilt.engines.client_states import StatesInMemory
from fedquilt.engines.cuda_graph.state_cache import StateCache
from fedquilt.training.method import State

CPU = torch.device("cpu")


def _state(value: float, numbers: int = 4) -> State:
    return {"method": {"a": torch.full((numbers,), value)}}  # 4 bytes a number


def _held(below: StatesInMemory, device_bytes: int, host_bytes: int) -> StateCache:
    return StateCache(below, CPU, device_bytes=device_bytes, host_bytes=host_bytes)


def _first(state: State) -> float:
    return float(state["method"]["a"][0])


def test_the_store_below_gets_states_only_when_told() -> None:
    below = StatesInMemory()
    held = _held(below, device_bytes=1000, host_bytes=0)
    held.put("one", _state(1.0))
    held.put("one", _state(2.0))
    assert below.get("one") == {}
    assert _first(held.get("one")) == 2.0
    held.write_down()
    assert _first(below.get("one")) == 2.0


def test_a_full_device_spills_to_the_host_and_that_to_the_store() -> None:
    below = StatesInMemory()
    held = _held(below, device_bytes=20, host_bytes=16)  # a state takes 16 bytes
    for client, value in (("a", 1.0), ("b", 2.0), ("c", 3.0)):
        held.put(client, _state(value))
    assert [held._held[client][0] for client in ("a", "b")] == ["device", "host"]
    assert _first(below.get("c")) == 3.0  # no room anywhere: written at once
    assert [_first(held.get(client)) for client in "abc"] == [1.0, 2.0, 3.0]
    held.write_down()
    assert [_first(below.get(client)) for client in "abc"] == [1.0, 2.0, 3.0]


def test_room_is_given_back_when_a_state_is_replaced() -> None:
    held = _held(StatesInMemory(), device_bytes=16, host_bytes=0)
    for value in range(5):
        held.put("a", _state(float(value)))
        assert held._held["a"][0] == "device"
    assert _first(held.get("a")) == 4.0


def test_a_state_that_outgrew_its_tier_is_not_read_from_it_again() -> None:
    below = StatesInMemory()
    held = _held(below, device_bytes=16, host_bytes=0)
    held.put("a", _state(1.0))
    held.put("a", _state(2.0, numbers=5))
    assert _first(held.get("a")) == 2.0
    held.write_down()
    assert _first(below.get("a")) == 2.0


@pytest.mark.parametrize(("device_bytes", "host_bytes"), [(1000, 0), (0, 1000), (0, 0)])
def test_the_layout_of_the_device_does_not_reach_the_store(
    device_bytes: int, host_bytes: int
) -> None:
    below = StatesInMemory()
    held = _held(below, device_bytes, host_bytes)
    kernel = torch.arange(24.0).reshape(1, 2, 3, 4)
    there = kernel.to(memory_format=torch.channels_last)
    held.put("a", {"method": {"kernel": there}})
    if device_bytes or host_bytes:  # copies between equal layouts are one call
        assert held.get("a")["method"]["kernel"].stride() == there.stride()
    held.write_down()
    found = below.get("a")["method"]["kernel"]
    assert found.is_contiguous()
    assert torch.equal(found, kernel)


def test_before_its_first_round_a_client_has_what_the_store_has() -> None:
    below = StatesInMemory()
    below.put("a", _state(7.0))
    held = _held(below, device_bytes=16, host_bytes=0)
    assert _first(held.get("a")) == 7.0
    assert held.get("b") == {}
