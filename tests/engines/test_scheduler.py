"""Scheduler with fake clients: when they start, and in which order rounds are emitted."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import pytest

from fedquilt.engines.cuda_graph.scheduler import LEAD_STEPS, Scheduler


class Log:
    """What happened to clients with these numbers of steps, in order."""

    def __init__(self, steps: Mapping[str, int], slots: int) -> None:
        self.steps, self.events = steps, list[str]()
        self._slots = [f"slot {number}" for number in range(slots)]

    def run(self) -> list[str]:
        scheduler = Scheduler(
            self._slots,
            [*self.steps],
            choose_slot=lambda free, name: free[0],
            start_round=lambda slot, name: FakeRound(self, str(slot), name),
            in_errors=lambda name: nullcontext(),
        )
        return [finished.name for finished in scheduler]

    def index(self, event: str) -> int:
        return self.events.index(event)


class FakeRound:
    def __init__(self, log: Log, slot: str, name: str) -> None:
        self._log, self._name = log, name
        self._left = log.steps[name]
        log.events.append(f"{name} in {slot}")

    def take_steps(self, most: int) -> bool:
        taken = min(most, self._left)
        self._left -= taken
        self._log.events += [f"{self._name} steps"] * taken
        return taken == most

    def close(self) -> tuple[dict[str, Any], dict[str, Any]]:
        self._log.events.append(f"{self._name} closed")
        return {}, {}

    def require_finite_loss(self) -> None:
        self._log.events.append(f"{self._name} emitted")


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 8])
def test_every_client_runs_and_is_emitted_in_order(slots: int) -> None:
    log = Log({"a": 30, "b": 1, "c": 12, "d": 3, "e": 50, "f": 2, "g": 9}, slots)
    assert log.run() == [*"abcdefg"]
    for name, count in log.steps.items():
        assert log.events.count(f"{name} steps") == count
        assert log.index(f"{name} closed") < log.index(f"{name} emitted")


def test_a_free_slot_takes_the_next_client_while_others_run() -> None:
    log = Log({"long": 100, "b": 9, "c": 9, "d": 9}, slots=2)
    log.run()
    started = [event for event in log.events if " in slot" in event]
    assert started == ["long in slot 0", "b in slot 1", "c in slot 1", "d in slot 1"]
    assert log.index("d in slot 1") < log.index("long closed")


def test_no_client_starts_while_too_many_wait_for_an_earlier_one() -> None:
    log = Log({"long": 100, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1}, slots=2)
    log.run()
    assert log.index("d closed") < log.index("long closed") < log.index("e in slot 1")


def test_the_device_has_queued_work_before_a_round_is_emitted() -> None:
    log = Log({"a": 10, "long": 100, "c": 10, "d": 100}, slots=2)
    log.run()
    meanwhile = log.events[log.index("c closed") : log.index("a emitted")]
    assert meanwhile.count("d steps") == LEAD_STEPS  # just started
    assert meanwhile.count("long steps") >= LEAD_STEPS  # running for long


def test_with_a_slot_per_client_rounds_are_emitted_after_all_are_closed() -> None:
    log = Log({"a": 3, "b": 30, "c": 10}, slots=3)
    log.run()
    last = max(log.index(f"{name} closed") for name in log.steps)
    assert log.events[last + 1 :] == [f"{name} emitted" for name in "abc"]
