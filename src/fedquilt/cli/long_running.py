"""What verbs that run for days share: they end cleanly when they are told to."""

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


def until_stopped(work: Callable[[], None]) -> None:
    """Run until interrupted or terminated; whatever ``work`` started ends with it."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGHUP, stop)
    try:
        work()
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
