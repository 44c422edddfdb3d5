"""Logs of programs that run for months stay small, and the last few are kept."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from fedquilt.core import log_files
from fedquilt.core.log_files import cut_if_full, rotating_log, set_aside


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "MAX_LOG_BYTES", 100)
    monkeypatch.setattr(log_files, "KEPT_LOGS", 2)


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_a_new_start_keeps_the_logs_of_the_last_ones(tmp_path: Path) -> None:
    log = tmp_path / "flare.log"
    for start in range(4):
        set_aside(log)
        log.write_text(str(start))
    assert contents(tmp_path) == {"flare.log": "3", "flare.log.1": "2", "flare.log.2": "1"}


def test_a_log_that_another_program_writes_to_is_emptied(tmp_path: Path) -> None:
    log = tmp_path / "flare.log"
    program = "import sys; [print(line, flush=True) for line in sys.stdin]"
    with log.open("ab") as file:
        writer = subprocess.Popen(
            [sys.executable, "-u", "-c", program], stdin=subprocess.PIPE, stdout=file, text=True
        )
    assert writer.stdin is not None
    cut_if_full(log)
    writer.stdin.write("x" * 200 + "\n")
    writer.stdin.flush()
    while log.stat().st_size < 200:
        pass
    log.chmod(0o600)
    cut_if_full(log)
    writer.stdin.write("after\n")
    writer.stdin.close()
    assert writer.wait(10) == 0
    kept = contents(tmp_path)
    assert kept["flare.log"].strip() == "after"  # no hole of zero bytes in front
    assert kept["flare.log.1"].strip() == "x" * 200
    assert (tmp_path / "flare.log.1").stat().st_mode & 0o077 == 0


def test_a_logger_begins_a_new_file(tmp_path: Path) -> None:
    handler = rotating_log(tmp_path / "site.log")
    for number in range(20):
        handler.emit(logging.makeLogRecord({"msg": f"line {number} \x1b[2J", "levelname": "INFO"}))
    handler.close()
    kept = contents(tmp_path)
    assert set(kept) == {"site.log", "site.log.1", "site.log.2"}
    assert all(len(text) <= 100 for text in kept.values())
    assert "line 19" in kept["site.log"]
    assert "\x1b" not in "".join(kept.values())
