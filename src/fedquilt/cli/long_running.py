"""Helpers for the commands of a study, some of which run for days."""

from __future__ import annotations

import signal
from collections.abc import Callable
from importlib.util import find_spec
from types import FrameType

import typer

from fedquilt.core.errors import UserError


def require_flare() -> None:
    if find_spec("nvflare") is None:
        raise UserError(
            "a study across hospitals needs NVIDIA FLARE: pip install 'fedquilt[deploy]'"
        )


def until_stopped(work: Callable[[], None], code: int = 130) -> None:
    """Run ``work``; end it cleanly, with this exit code, on Ctrl-C, SIGTERM or SIGHUP."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGHUP, stop)
    try:
        work()
    except KeyboardInterrupt:
        raise typer.Exit(code) from None
