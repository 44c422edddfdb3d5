"""How much memory a piece of work takes, and how much there is: where the system tells, else None.

Linux tells. Elsewhere callers must do without, as if there were enough.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

STATUS = Path("/proc/self/status")
FORGET_PEAK = Path("/proc/self/clear_refs")
MACHINE = Path("/proc/meminfo")
CONTAINER = Path("/sys/fs/cgroup")


@dataclass
class Growth:
    """``most`` bytes were taken beyond what was there at the beginning."""

    most: int | None = None


@contextmanager
def growth() -> Iterator[Growth]:
    """What this process takes at the most while the block runs; filled in at its end."""
    found = Growth()
    _give_back()
    try:
        FORGET_PEAK.write_text("5")
        before = _kilobytes(STATUS)["VmRSS"]
    except (OSError, KeyError):
        yield found
        return
    yield found
    found.most = max(0, _kilobytes(STATUS)["VmHWM"] - before)


def _give_back() -> None:
    """Freed memory that this process keeps for itself would be used first, and not be seen."""
    with suppress(OSError, AttributeError, TypeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


def available() -> int | None:
    """Bytes that this process could still take, by the machine's and by its container's account."""
    try:
        free = _kilobytes(MACHINE)["MemAvailable"]
    except (OSError, KeyError):
        return None
    try:
        limit, used = (
            int((CONTAINER / name).read_text()) for name in ("memory.max", "memory.current")
        )
    except (OSError, ValueError):  # no container, or one without a limit
        return free
    return min(free, limit - used)


def _kilobytes(path: Path) -> dict[str, int]:
    """Lines such as "VmRSS:  1234 kB", in bytes."""
    lines = [line.split() for line in path.read_text().splitlines() if line.endswith(" kB")]
    return {words[0].rstrip(":"): 1024 * int(words[1]) for words in lines}
