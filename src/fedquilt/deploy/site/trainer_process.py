"""TrainerProcess: runs training in a child process, so that a crash costs only one update."""

from __future__ import annotations

import logging
import queue
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from fedquilt.deploy.child_python import (
    NEUTRAL_FOLDER,
    OWNER_ONLY,
    clean_environment,
    python_command,
)
from fedquilt.deploy.protocol.frames import read_frame, write_frame

log = logging.getLogger(__name__)
POLL_SECONDS = 0.2  # between checks whether the request was cancelled


class Cancelled(Exception):
    """Raised when the server no longer waits for the reply."""


class TrainerProcess:
    """A training process that is restarted if it died, and ends when its parent ends."""

    def __init__(self, kit: Path, settings: Path) -> None:
        self._kit = kit
        trainer = "fedquilt.deploy.site.trainer"
        self._command = python_command(trainer, str(kit.resolve()), str(settings.resolve()))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            cwd=NEUTRAL_FOLDER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=clean_environment(),
            umask=OWNER_ONLY,
        )

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def ask(self, request: bytes, is_cancelled: Callable[[], bool]) -> bytes:
        """Return the trainer's reply; if it died, return an error reply in its place."""
        if self._process is None or self._process.poll() is not None:
            self.start()
        process = self._process
        assert process is not None
        replies: queue.Queue[bytes | None] = queue.Queue()
        threading.Thread(target=_exchange, args=(process, request, replies), daemon=True).start()
        while True:
            try:
                reply = replies.get(timeout=POLL_SECONDS)
                break
            except queue.Empty:
                if is_cancelled():
                    self.stop()
                    raise Cancelled from None
        if reply is not None:
            return reply
        code = process.wait()
        self.stop()
        return _crash_reply(request, code, self._kit)


def _exchange(
    process: subprocess.Popen[bytes], request: bytes, replies: queue.Queue[bytes | None]
) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        write_frame(process.stdin, request)
        replies.put(read_frame(process.stdout))
    except (OSError, ValueError, EOFError):
        replies.put(None)


def _crash_reply(request: bytes, code: int, kit: Path) -> bytes:
    """Return an error reply in place of the trainer's. Imports torch, so only when needed."""
    from fedquilt.deploy.kit import Kit
    from fedquilt.deploy.protocol.messages import failure

    why = f"signal {-code}" if code < 0 else f"exit code {code}"
    log.error("the training process ended with %s", why)
    return failure(request, Kit(kit).role(), "TrainingProcessDied", f"it ended with {why}")
