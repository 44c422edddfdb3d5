"""Scheduler of made-up clients: who is let in when, and in which order rounds are handed over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import pytest

from fedquilt.engines.cuda_graph.scheduler import HEAD_START, Scheduler


class Log:
    """What happened to clients of these lengths, in order."""

    def __init__(self, lengths: Mapping[str, int], slots: int) -> None:
        self.lengths, self.events = lengths, list[str]()
        self._slots = [f"slot {number}" for number in range(slots)]

    def play(self) -> list[str]:
        turns = Scheduler(
            self._slots,
            [*self.lengths],
            choose=lambda free, name: free[0],
            enter=lambda slot, name: FakeVisit(self, str(slot), name),
            named=lambda name: nullcontext(),
        )
        return [played.name for played in turns]

    def place(self, event: str) -> int:
        return self.events.index(event)


class FakeVisit:
    def __init__(self, log: Log, slot: str, name: str) -> None:
        self._log, self._name = log, name
        log.events.append(f"{name} in {slot}")

    def steps(self) -> Iterator[None]:
        for _ in range(self._log.lengths[self._name]):
            self._log.events.append(f"{self._name} steps")
            yield

    def close(self) -> tuple[dict[str, Any], dict[str, Any]]:
        self._log.events.append(f"{self._name} closed")
        return {}, {}

    def require_finite_loss(self) -> None:
        self._log.events.append(f"{self._name} handed over")


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 8])
def test_everybody_is_played_and_handed_over_in_order(slots: int) -> None:
    log = Log({"a": 30, "b": 1, "c": 12, "d": 3, "e": 50, "f": 2, "g": 9}, slots)
    assert log.play() == [*"abcdefg"]
    for name, length in log.lengths.items():
        assert log.events.count(f"{name} steps") == length
        assert log.place(f"{name} closed") < log.place(f"{name} handed over")


def test_a_free_slot_gets_the_next_client_while_others_still_play() -> None:
    log = Log({"long": 100, "b": 9, "c": 9, "d": 9}, slots=2)
    log.play()
    entered = [event for event in log.events if " in slot" in event]
    assert entered == ["long in slot 0", "b in slot 1", "c in slot 1", "d in slot 1"]
    assert log.place("d in slot 1") < log.place("long closed")


def test_nobody_new_comes_in_while_too_many_wait_for_an_earlier_one() -> None:
    log = Log({"long": 100, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1}, slots=2)
    log.play()
    assert log.place("d closed") < log.place("long closed") < log.place("e in slot 1")


def test_the_device_has_work_before_anybody_is_handed_over() -> None:
    log = Log({"a": 10, "long": 100, "c": 10, "d": 100}, slots=2)
    log.play()
    meanwhile = log.events[log.place("c closed") : log.place("a handed over")]
    assert meanwhile.count("d steps") == HEAD_START  # just let in
    assert meanwhile.count("long steps") >= HEAD_START  # here for long


def test_with_a_slot_for_each_nothing_is_waited_for_before_all_are_done() -> None:
    log = Log({"a": 3, "b": 30, "c": 10}, slots=3)
    log.play()
    last = max(log.place(f"{name} closed") for name in log.lengths)
    assert log.events[last + 1 :] == [f"{name} handed over" for name in "abc"]
