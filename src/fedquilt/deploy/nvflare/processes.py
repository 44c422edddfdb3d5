"""FlareProcess: FLARE's server or client program with all of its child processes."""

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
    """A FLARE program in its own session, so that it can be ended with all its children."""

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
        """Return the exit code, or None if the process still runs after ``seconds``."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def end(self) -> None:
        """Kill the process and its children, which include FLARE's job processes."""
        _kill_tree(self.pid)
        self._process.wait()
        self._file.close()


def claim(kit: Kit) -> IO[str]:
    """Lock the kit, so that it is started only once, until the returned file is closed."""
    kit.work.mkdir(exist_ok=True)
    file = (kit.work / ".claim").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise UserError(
            f"the kit {kit.folder} is already started by another process; stop that one first"
        ) from None
    return file


def _end_leftover(kit: Kit) -> None:
    """End FLARE processes that were left running when an earlier fedquilt process was killed."""
    try:
        pid = int((kit.work / PID).read_text())
        command = psutil.Process(pid).cmdline()
    except (OSError, ValueError, psutil.Error):
        return
    if str(kit.folder.resolve()) in command:
        _kill_tree(pid)


def _kill_tree(pid: int) -> None:
    for each in [*_tree(pid), pid]:
        _kill(each)


def _tree(pid: int) -> list[int]:
    """Return all descendants, and members of the session whose parents have ended."""
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
    """Start FLARE's server through our module, which binds it to the study's address."""
    module = "fedquilt.deploy.nvflare.bound_server"
    return FlareProcess(kit, module, "fed_server.json", "org=coordinator")


def listening_addresses(pid: int, port: int) -> set[str]:
    """Return the IPv4 addresses that a process listens on at a port, IPv6 sockets included."""
    try:
        connections = psutil.Process(pid).net_connections(kind="tcp")
    except psutil.NoSuchProcess:
        return set()
    return {
        "0.0.0.0" if each.laddr.ip == "::" else each.laddr.ip.removeprefix("::ffff:")
        for each in connections
        if each.status == psutil.CONN_LISTEN and each.laddr.port == port
    }
