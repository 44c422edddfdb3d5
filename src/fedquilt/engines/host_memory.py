"""Host memory: what a block of code takes, and what is available.

Read from Linux's files. On other systems the values are None, and callers assume enough memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

STATUS = Path("/proc/self/status")
CLEAR_PEAK = Path("/proc/self/clear_refs")
MACHINE = Path("/proc/meminfo")
CONTAINER = Path("/sys/fs/cgroup")


@dataclass
class PeakGrowth:
    """``bytes``: the peak of resident memory during a block, minus the memory before it."""

    bytes: int | None = None


@contextmanager
def peak_growth() -> Iterator[PeakGrowth]:
    """Measure this process's peak growth during the block; the value is set when it ends."""
    found = PeakGrowth()
    _trim_heap()
    try:
        CLEAR_PEAK.write_text("5")
        before = _in_bytes(STATUS)["VmRSS"]
    except (OSError, KeyError):
        yield found
        return
    yield found
    found.bytes = max(0, _in_bytes(STATUS)["VmHWM"] - before)


def _trim_heap() -> None:
    """Return freed memory to the system: if the block reused it, its growth would not be seen."""
    with suppress(OSError, AttributeError, TypeError):  # glibc only
        ctypes.CDLL(None).malloc_trim(0)


def available_bytes() -> int | None:
    """Return the bytes this process can still take, limited by the machine and its container."""
    try:
        free = _in_bytes(MACHINE)["MemAvailable"]
    except (OSError, KeyError):
        return None
    try:
        limit, used = (
            int((CONTAINER / name).read_text()) for name in ("memory.max", "memory.current")
        )
    except (OSError, ValueError):  # no container, or one without a limit
        return free
    return min(free, limit - used)


def _in_bytes(path: Path) -> dict[str, int]:
    """Parse lines such as "VmRSS:  1234 kB"; values are in bytes."""
    lines = [line.split() for line in path.read_text().splitlines() if line.endswith(" kB")]
    return {words[0].rstrip(":"): 1024 * int(words[1]) for words in lines}
