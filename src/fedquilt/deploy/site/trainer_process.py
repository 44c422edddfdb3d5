"""TrainerProcess: training in a process of its own, so that its crash is only a missing update."""

from __future__ import annotations

import logging
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from fedquilt.deploy.protocol.frames import read_frame, write_frame

log = logging.getLogger(__name__)
GLANCE = 0.2  # seconds between looks at whether the work is still wanted


class Interrupted(Exception):
    """The server no longer wants an answer."""


class TrainerProcess:
    """Started anew whenever it is gone; it ends by itself when its parent does."""

    def __init__(self, kit: Path, settings: Path) -> None:
        self._kit = kit
        self._command = [
            sys.executable,
            "-m",
            "fedquilt.deploy.site.trainer",
            str(kit),
            str(settings),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def ask(self, request: bytes, is_unwanted: Callable[[], bool]) -> bytes:
        """The trainer's answer; if it died over the question, an answer that says so."""
        if self._process is None or self._process.poll() is not None:
            self.start()
        process = self._process
        assert process is not None
        answers: queue.Queue[bytes | None] = queue.Queue()
        threading.Thread(target=_converse, args=(process, request, answers), daemon=True).start()
        while True:
            try:
                answer = answers.get(timeout=GLANCE)
                break
            except queue.Empty:
                if is_unwanted():
                    self.stop()
                    raise Interrupted from None
        if answer is not None:
            return answer
        code = process.wait()
        self.stop()
        return _crashed(request, code, self._kit)


def _converse(
    process: subprocess.Popen[bytes], request: bytes, answers: queue.Queue[bytes | None]
) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        write_frame(process.stdin, request)
        answers.put(read_frame(process.stdout))
    except (OSError, ValueError, EOFError):
        answers.put(None)


def _crashed(request: bytes, code: int, kit: Path) -> bytes:
    """Said in the trainer's place; torch is imported only now."""
    from fedquilt.deploy.kit import Kit
    from fedquilt.deploy.protocol.messages import Message, pack, unpack

    why = f"signal {-code}" if code < 0 else f"exit code {code}"
    log.error("the training process ended with %s", why)
    facts = dict(unpack(request).facts) | {"site": Kit(kit).role()}
    failure = {"error": "TrainingProcessDied", "text": f"it ended with {why}"}
    return pack(Message({**facts, **failure}, {}))
