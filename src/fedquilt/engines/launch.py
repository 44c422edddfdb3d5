"""Start further processes of this command, which run clients beside it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryFile
from typing import IO

from fedquilt.core.errors import UserError

GRACE_SECONDS = 10.0  # for the others to end by themselves
HERE = "127.0.0.1"
STARTED_HERE = "FEDQUILT_STARTED"  # set for processes that this module started
SHOWN_LINES = 5  # of what a process said before it ended

_started: list[tuple[subprocess.Popen[bytes], IO[bytes]]] = []


@contextmanager
def further_processes(count: int) -> Iterator[None]:
    """Start ``count - 1`` processes with this command's arguments; end them when it ends.

    The variables are those of torchrun, so that both ways of starting are read alike.
    """
    if count == 1 or STARTED_HERE in os.environ:
        yield
        return
    if "WORLD_SIZE" in os.environ:
        raise UserError(
            "--processes starts processes, and torchrun has started this one already; "
            "leave out --processes"
        )
    shared = {
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": HERE,
        "MASTER_PORT": str(_free_port()),
    }
    try:
        for number in range(1, count):
            _start(shared | {"RANK": str(number), "LOCAL_RANK": str(number), STARTED_HERE: "1"})
        os.environ.update(shared, RANK="0", LOCAL_RANK="0")
        yield
        with suppress(subprocess.TimeoutExpired):  # what they were for is done
            for child, _ in _started:
                child.wait(GRACE_SECONDS)
    finally:
        for name in (*shared, "RANK", "LOCAL_RANK"):
            os.environ.pop(name, None)
        for child, said in _started:
            child.kill()
            child.wait()
            said.close()
        _started.clear()


def check_all_run() -> None:
    """Raise UserError if a process that was started here has ended."""
    for number, (child, said) in enumerate(_started, start=1):
        if child.poll() is not None:
            said.seek(0)
            lines = said.read().decode(errors="replace").strip().splitlines()[-SHOWN_LINES:]
            raise UserError(
                f"process {number} ended with code {child.returncode} before it could join: "
                + (" ".join(line.strip() for line in lines) or "it left no message")
            )


def _start(variables: dict[str, str]) -> None:
    said = TemporaryFile()  # noqa: SIM115 (closed with its process)
    child = subprocess.Popen(
        [sys.executable, "-m", "fedquilt", *sys.argv[1:]],
        env=os.environ | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=said,
    )
    _started.append((child, said))


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HERE, 0))
        port: int = listener.getsockname()[1]
        return port
