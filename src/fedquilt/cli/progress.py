"""Progress bars: RunProgress for one run, RoundsProgress for several runs."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fedquilt.cli.console import messages, note, say
from fedquilt.core.wording import counted
from fedquilt.reports.style import percent

LOG_LINES = 10  # of RoundsProgress, if there is no terminal


class RunProgress:
    """Observer for ``run``: a progress bar on a terminal, otherwise one line per round."""

    def __init__(self) -> None:
        self._is_live = messages.is_terminal
        self._bar = Progress(
            TextColumn("round {task.completed:.0f}/{task.total:.0f}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[facts]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=messages,
        )
        self._task = self._bar.add_task("", total=None, visible=False, facts="", start=False)
        self._rounds = 0
        self._auc: float | None = None  # of the last evaluation
        self._kind = "AUC"  # on the test images; with a validation part, on that

    def __enter__(self) -> RunProgress:
        return self

    def __exit__(self, *details: object) -> None:
        self._stop()

    def __call__(self, event: str, facts: dict[str, Any]) -> None:
        if event == "notice":
            note(facts["text"])
        elif event == "begin":
            self._begin(facts)
        elif event == "round":
            self._round(facts)
        elif event == "end":
            self._stop()

    def _stop(self) -> None:
        if self._bar.live.is_started:
            self._bar.stop()

    def _begin(self, facts: dict[str, Any]) -> None:
        self._rounds = facts["rounds"]
        clients, rounds = counted(facts["clients"], "client"), counted(facts["rounds"], "round")
        classes = counted(facts["classes"], "class", "classes")
        say(f"{facts['folder']}: {clients}, {classes}, {rounds}")
        done = facts["first_round"]
        if done:
            say(f"resuming after round {done}" if done < self._rounds else "all rounds are done")
        if self._is_live and done < self._rounds:
            self._bar.update(self._task, total=self._rounds, completed=done, visible=True)
            self._bar.start_task(self._task)
            self._bar.start()

    def _round(self, record: dict[str, Any]) -> None:
        if record["metrics"] is not None:
            self._auc = record["metrics"]["macro_auc"]
        if "validation" in record:
            self._kind, self._auc = "validation AUC", record["validation"]["site_auc"]
        loss = "not sent" if record["loss"] is None else f"{record['loss']:.4f}"
        facts = f"loss {loss}  {self._kind} {percent(self._auc)}"
        if self._is_live:
            self._bar.update(self._task, completed=record["round"], facts=facts)
        else:
            say(f"round {record['round']}/{self._rounds}  {facts}  {record['seconds']:.1f} s")


class RoundsProgress:
    """Progress for ``run_all``: a progress bar on a terminal, otherwise a few lines."""

    def __init__(self) -> None:
        self._bar = Progress(
            TextColumn("training"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("rounds"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=messages,
            disable=not messages.is_terminal,
        )
        self._task = self._bar.add_task("", total=None)
        self._start: tuple[float, int] | None = None  # start time, and rounds done before
        self._lines = 0

    def __enter__(self) -> RoundsProgress:
        self._bar.start()
        return self

    def __exit__(self, *details: object) -> None:
        self._bar.stop()

    def __call__(self, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total)
        if not messages.is_terminal:
            self._log(done, total)

    def _log(self, done: int, total: int) -> None:
        if self._start is None:
            self._start, self._lines = (time.monotonic(), done), done * LOG_LINES // total
        began, before = self._start
        if done * LOG_LINES // total > self._lines:
            self._lines = done * LOG_LINES // total
            elapsed = time.monotonic() - began
            left = elapsed / (done - before) * (total - done)
            say(
                f"{done} of {counted(total, 'round')} in {_clock(elapsed)}, about "
                f"{_clock(left)} left"
            )


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
