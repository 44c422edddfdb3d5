"""FlareProcess: FLARE's server or client program with all of its child processes."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from typing import IO

import psutil

from fedquilt.core.errors import UserError
from fedquilt.core.log_files import cut_if_full, set_aside
from fedquilt.deploy.child_python import (
    NEUTRAL_FOLDER,
    OWNER_ONLY,
    clean_environment,
    python_command,
)
from fedquilt.deploy.nvflare.workspace import Workspace


class FlareProcess:
    """A FLARE program in its own session, so that it can be ended with all its children."""

    def __init__(self, workspace: Workspace, module: str, config: str, *settings: str) -> None:
        self.log = workspace.log
        set_aside(self.log)  # why an earlier start failed
        self._file: IO[bytes] = self.log.open("ab")  # so that it can be emptied
        arguments = ["-m", str(workspace.root), "-s", config]
        arguments += ["--set", "secure_train=true", "config_folder=config", *settings]
        self._process = subprocess.Popen(
            python_command(module, *arguments),
            cwd=NEUTRAL_FOLDER,
            stdin=subprocess.DEVNULL,
            stdout=self._file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=clean_environment(MALLOC_ARENA_MAX="4"),
            umask=OWNER_ONLY,
        )
        workspace.process_file.write_text(str(self._process.pid))

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self, seconds: float) -> int | None:
        """Return the exit code, or None if the process still runs after ``seconds``.

        Waiting also keeps the log, which the process and its children write to, from growing.
        """
        cut_if_full(self.log)
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


def claim(workspace: Workspace) -> IO[str]:
    """Lock the workspace until the returned file is closed, and end what was left running in it.

    A workspace is used by one process only.
    """
    workspace.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = (workspace.folder / ".claim").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise UserError(
            f"the kit is already started by another process, which uses {workspace.folder}; stop "
            "that one first"
        ) from None
    _end_leftover(workspace)
    return file


def _end_leftover(workspace: Workspace) -> None:
    """End FLARE processes that were left running when an earlier fedquilt process was killed."""
    try:
        pid = int(workspace.process_file.read_text())
        command = psutil.Process(pid).cmdline()
    except (OSError, ValueError, psutil.Error):
        return
    if str(workspace.root) in command:
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


def site_process(workspace: Workspace, site: str, organisation: str) -> FlareProcess:
    client = "nvflare.private.fed.app.client.client_train"
    return FlareProcess(workspace, client, "fed_client.json", f"uid={site}", f"org={organisation}")


def server_process(workspace: Workspace) -> FlareProcess:
    """Start FLARE's server through our module, which binds it to the study's address."""
    module = "fedquilt.deploy.nvflare.bound_server"
    return FlareProcess(workspace, module, "fed_server.json", "org=coordinator")


def is_connected(pid: int, port: int) -> bool:
    """Return whether a process has an open connection to this port of any machine."""
    try:
        connections = psutil.Process(pid).net_connections(kind="tcp")
    except psutil.Error:
        return False
    return any(
        each.status == psutil.CONN_ESTABLISHED and each.raddr and each.raddr.port == port
        for each in connections
    )


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
