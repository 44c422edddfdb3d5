"""RunProgress: what a person sees while a run goes on."""

from __future__ import annotations

from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedquilt.cli.console import note, remarks, say
from fedquilt.reports.numbers import percent


class RunProgress:
    """An observer for ``experiment.run``: a live bar on a terminal, a line a round elsewhere."""

    def __init__(self) -> None:
        self._is_live = remarks.is_terminal
        self._bar = Progress(
            TextColumn("round {task.completed:.0f}/{task.total:.0f}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[facts]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=remarks,
        )
        self._task = self._bar.add_task("", total=None, visible=False, facts="", start=False)
        self._rounds = 0
        self._auc: float | None = None  # of the last evaluation, which may be rounds ago

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
        say(
            f"{facts['folder']}: {facts['clients']} clients, {facts['classes']} classes, "
            f"{facts['rounds']} rounds"
        )
        done = facts["first_round"]
        if done:
            say(f"going on after round {done}" if done < self._rounds else "all rounds are done")
        if self._is_live and done < self._rounds:
            self._bar.update(self._task, total=self._rounds, completed=done, visible=True)
            self._bar.start_task(self._task)
            self._bar.start()

    def _round(self, record: dict[str, Any]) -> None:
        if record["metrics"] is not None:
            self._auc = record["metrics"]["macro_auc"]
        facts = f"loss {record['loss']:.4f}  AUC {percent(self._auc)}"
        if self._is_live:
            self._bar.update(self._task, completed=record["round"], facts=facts)
        else:
            say(f"round {record['round']}/{self._rounds}  {facts}  {record['seconds']:.1f} s")
