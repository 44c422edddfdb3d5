"""RoundsProgress: how far several runs are, taken together."""

from __future__ import annotations

import time
from datetime import timedelta

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fedquilt.cli.console import remarks, say

LINES = 10  # that a log gets


class RoundsProgress:
    """The rounds of all runs, for ``run_all``: a bar on a terminal, a few lines in a log."""

    def __init__(self) -> None:
        self._bar = Progress(
            TextColumn("training"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("rounds"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=remarks,
            disable=not remarks.is_terminal,
        )
        self._task = self._bar.add_task("", total=None)
        self._start: tuple[float, int] | None = None  # when, and with how many rounds done
        self._lines = 0

    def __enter__(self) -> RoundsProgress:
        self._bar.start()
        return self

    def __exit__(self, *details: object) -> None:
        self._bar.stop()

    def __call__(self, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total)
        if not remarks.is_terminal:
            self._log(done, total)

    def _log(self, done: int, total: int) -> None:
        if self._start is None:
            self._start, self._lines = (time.monotonic(), done), done * LINES // total
        began, before = self._start
        if done * LINES // total > self._lines:
            self._lines = done * LINES // total
            passed = time.monotonic() - began
            left = passed / (done - before) * (total - done)
            say(f"{done} of {total} rounds in {_clock(passed)}, about {_clock(left)} left")


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
