"""Progress of runs, on a terminal and in a log."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from fedquilt.cli import console, progress
from fedquilt.cli.console import Notes
from fedquilt.cli.progress import RoundsProgress, RunProgress

BEGIN = {"folder": "runs/x", "first_round": 0, "rounds": 3, "clients": 5, "classes": 4}


def record(number: int, auc: float | None) -> dict[str, Any]:
    metrics = None if auc is None else {"macro_auc": auc}
    return {"round": number, "loss": 0.5, "metrics": metrics, "seconds": 1.25}


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    written = io.StringIO()
    terminal = Console(file=written, force_terminal=True, width=100, highlight=False)
    for module in (console, progress):
        monkeypatch.setattr(module, "messages", terminal)
    return written


def test_lines_without_a_terminal(capsys: pytest.CaptureFixture[str]):
    with RunProgress() as shown:
        shown("begin", BEGIN)
        shown("round", record(1, 0.75))
        shown("notice", {"text": "a checkpoint is damaged"})
        shown("round", record(2, None))
        shown("end", {})
    assert capsys.readouterr().err.splitlines() == [
        "runs/x: 5 clients, 4 classes, 3 rounds",
        "round 1/3  loss 0.5000  AUC 75.0  1.2 s",
        "note: a checkpoint is damaged",
        "round 2/3  loss 0.5000  AUC 75.0  1.2 s",  # that of the last evaluation
    ]


def test_bar_on_a_terminal(screen: io.StringIO):
    with RunProgress() as shown:
        shown("begin", BEGIN | {"first_round": 1})
        shown("round", record(2, 0.75))
        shown("notice", {"text": "a checkpoint is damaged"})
        shown("round", record(3, 0.8))
        shown("end", {})
    text = screen.getvalue()
    assert "resuming after round 1" in text
    assert "round 3/3" in text
    assert "AUC 80.0" in text
    assert "a checkpoint is damaged" in text


def test_no_bar_if_all_rounds_are_done(screen: io.StringIO):
    with RunProgress() as shown:
        shown("begin", BEGIN | {"first_round": 3})
        shown("end", {})
    assert screen.getvalue().splitlines()[1:] == ["all rounds are done"]


def test_log_messages_become_notes_once(capsys: pytest.CaptureFixture[str]):
    logger = logging.getLogger("fedquilt.somewhere")
    before = logging.getLogger("fedquilt").level
    with Notes():
        logger.info("%d of 3 weights read", 2)
        logger.info("2 of 3 weights read")
        logger.debug("detail")
    logger.info("later")
    assert capsys.readouterr().err == "note: 2 of 3 weights read\n"
    assert logging.getLogger("fedquilt").level == before


def test_several_runs_write_ten_lines_with_the_time_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    clock = iter([100.0, *(100.0 + 30 * part for part in range(1, 10))])
    monkeypatch.setattr(progress, "say", said.append)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with RoundsProgress() as shown:
        for done in range(20, 201):  # of 200, 20 were done before
            shown(done, 200)
            shown(done, 200)
    assert len(said) == 9
    # 20 rounds in 30 s: the other 160 take 240 s.
    assert said[0] == "40 of 200 rounds in 0:00:30, about 0:04:00 left"
    assert said[-1] == "200 of 200 rounds in 0:04:30, about 0:00:00 left"
