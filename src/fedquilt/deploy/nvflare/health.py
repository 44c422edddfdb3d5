"""Whether a running site takes part: what ``site serve`` notes, and ``site health`` reads."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path

import psutil

from fedquilt.core.atomic_files import write_bytes
from fedquilt.core.parsed_text import UNREADABLE, parse_json
from fedquilt.deploy.audit_chain import AUDIT_FILE, read_events
from fedquilt.deploy.kit import Kit
from fedquilt.deploy.nvflare.seal import expiry_note
from fedquilt.deploy.nvflare.workspace import Workspace
from fedquilt.deploy.site.settings import SiteSettings

HEALTH_FILE = "health.json"  # in the site's workspace
NOTED_SECONDS = 5.0  # between two notes
STALE_SECONDS = 60.0  # without a note, the site does not run
LEAST_FREE_BYTES = 2**30  # on the disk of the work folder
AUDIT_TAIL = 2**16  # bytes, of which the last event is read
FAILURES = ("failed", "refused", "damaged", "data changed")  # events of the site's audit log


class State(IntEnum):
    """A site's state; the number is the exit code of ``site health``."""

    HEALTHY = 0
    NOT_RUNNING = 3  # 1 and 2 are errors of the command itself
    NOT_CONNECTED = 4
    NEEDS_ATTENTION = 5


@dataclass(frozen=True)
class Health:
    """What is known about a site."""

    state: State
    lines: tuple[str, ...]


class HealthNotes:
    """Writes every few seconds whether the site has a connection to the server."""

    def __init__(self, workspace: Workspace) -> None:
        self._path = workspace.folder / HEALTH_FILE
        self._noted = -NOTED_SECONDS

    def note(self, *, is_connected: bool) -> None:
        if time.monotonic() - self._noted >= NOTED_SECONDS:
            self._noted = time.monotonic()
            note = _Note(at=time.time(), pid=os.getpid(), is_connected=is_connected)
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_bytes(self._path, json.dumps(asdict(note)).encode(), durable=False)

    def close(self) -> None:
        self._path.unlink(missing_ok=True)


@dataclass(frozen=True)
class _Note:
    at: float  # seconds since 1970
    pid: int
    is_connected: bool


def site_health(kit: Kit, settings: SiteSettings) -> Health:
    """Read what the site's process noted; connect to nothing."""
    study, site, work = kit.study(), kit.role(), Path(settings.work_folder)
    note = _read(Workspace.of_site(work, study, site).folder / HEALTH_FILE)
    if note is None or not _is_running(note):
        return Health(State.NOT_RUNNING, (f"{site} does not run in {study.name}",))
    if not note.is_connected:
        where = f"{study.server.host}:{study.server.port}"
        return Health(State.NOT_CONNECTED, (f"{site} runs, and has no connection to {where}",))
    said = [f"{site} takes part in {study.name}"]
    worries = _worries(kit, work)
    return Health(State.NEEDS_ATTENTION if worries else State.HEALTHY, (*said, *worries))


def _is_running(note: _Note) -> bool:
    """Whether the process runs and still writes notes; a killed one has left its last."""
    return time.time() - note.at <= STALE_SECONDS and psutil.pid_exists(note.pid)


def _worries(kit: Kit, work: Path) -> list[str]:
    found = [expiry_note(kit)]
    free = shutil.disk_usage(work).free
    if free < LEAST_FREE_BYTES:
        found.append(f"only {free / 1e6:,.0f} MB are free on the disk of {work}")
    log = work / AUDIT_FILE
    size = log.stat().st_size if log.exists() else 0
    events, _ = read_events(log, max(0, size - AUDIT_TAIL))
    if events and events[-1].get("event") in FAILURES:
        found.append(f"the last event in {log} is {events[-1]['event']!r}")
    return [each for each in found if each is not None]


def _read(path: Path) -> _Note | None:
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
        note = _Note(**content)
        return _Note(float(note.at), int(note.pid), bool(note.is_connected))
    except UNREADABLE:
        return None
