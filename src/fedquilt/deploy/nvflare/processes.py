"""FLARE's own server and client programs as processes that we started, watch and can end whole."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from typing import IO

import psutil

from fedquilt.core.errors import UserError
from fedquilt.deploy.kit import Kit

LOG, PID = "flare.log", "flare.pid"


class FlareProcess:
    """One FLARE program with all it starts, in a session of its own."""

    def __init__(self, kit: Kit, module: str, config: str, *settings: str) -> None:
        kit.work.mkdir(exist_ok=True)
        _end_leftover(kit)
        self.log = kit.work / LOG
        self._file: IO[bytes] = self.log.open("wb")
        command = [sys.executable, "-u", "-m", module, "-m", str(kit.folder.resolve())]
        command += ["-s", config, "--set", "secure_train=true", "config_folder=config", *settings]
        self._process = subprocess.Popen(
            command,
            cwd=kit.folder,
            stdin=subprocess.DEVNULL,
            stdout=self._file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | {"MALLOC_ARENA_MAX": "4"},
        )
        (kit.work / PID).write_text(str(self._process.pid))

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self, seconds: float) -> int | None:
        """The exit code, or None if it still runs after so long."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def end(self) -> None:
        """Kill it and everything it started: FLARE's job processes are its children."""
        _kill_tree(self.pid)
        self._process.wait()
        self._file.close()


def claim(kit: Kit) -> IO[str]:
    """One participant per kit; the file returned holds the claim until it is closed."""
    kit.work.mkdir(exist_ok=True)
    file = (kit.work / ".claim").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise UserError(
            f"another process has started the kit {kit.folder}: two would push each other out"
        ) from None
    return file


def _end_leftover(kit: Kit) -> None:
    """What a starter that was itself killed left running: two of a kit push each other out."""
    try:
        pid = int((kit.work / PID).read_text())
        words = psutil.Process(pid).cmdline()
    except (OSError, ValueError, psutil.Error):
        return
    if str(kit.folder.resolve()) in words:
        _kill_tree(pid)


def _kill_tree(pid: int) -> None:
    for each in [*_tree(pid), pid]:
        _kill(each)


def _tree(pid: int) -> list[int]:
    """Descendants, and members of its session whose parents are gone."""
    try:
        below = [each.pid for each in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        below = []
    session = []
    for each in psutil.pids():
        try:
            if os.getsid(each) == pid and each != pid:
                session.append(each)
        except (ProcessLookupError, PermissionError):
            continue
    return sorted({*below, *session})


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def site_process(kit: Kit, site: str, organisation: str) -> FlareProcess:
    client = "nvflare.private.fed.app.client.client_train"
    return FlareProcess(kit, client, "fed_client.json", f"uid={site}", f"org={organisation}")


def server_process(kit: Kit) -> FlareProcess:
    """Our own entry, which listens on the study's address and no other."""
    module = "fedquilt.deploy.nvflare.bound_server"
    return FlareProcess(kit, module, "fed_server.json", "org=coordinator")


def listening_addresses(pid: int, port: int) -> set[str]:
    """The IPv4 addresses a process listens on at this port, also through sockets of IPv6."""
    try:
        connections = psutil.Process(pid).net_connections(kind="tcp")
    except psutil.NoSuchProcess:
        return set()
    return {
        "0.0.0.0" if each.laddr.ip == "::" else each.laddr.ip.removeprefix("::ffff:")
        for each in connections
        if each.status == psutil.CONN_LISTEN and each.laddr.port == port
    }
