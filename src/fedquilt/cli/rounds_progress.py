"""RoundsProgress: how far several runs are, taken together."""

from __future__ import annotations

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fedquilt.cli.console import remarks


class RoundsProgress:
    """A bar over the rounds of all runs, for ``run_all``; nothing where nobody watches."""

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

    def __enter__(self) -> RoundsProgress:
        self._bar.start()
        return self

    def __exit__(self, *details: object) -> None:
        self._bar.stop()

    def __call__(self, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total)
