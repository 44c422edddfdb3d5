"""start_site(): joins a study, after a test connection whose errors can be explained."""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from fedquilt.core.errors import UserError
from fedquilt.core.shown_text import shown
from fedquilt.deploy.audit_chain import AUDIT_FILE, read_events
from fedquilt.deploy.kit import Kit
from fedquilt.deploy.nvflare.amending import check_amendments
from fedquilt.deploy.nvflare.health import FAILURES, HealthNotes
from fedquilt.deploy.nvflare.processes import FlareProcess, claim, is_connected, site_process
from fedquilt.deploy.nvflare.seal import check_seal, expiry_note
from fedquilt.deploy.nvflare.workspace import Workspace, write_site_workspace
from fedquilt.deploy.site.settings import (
    SITE_LOG,
    SiteSettings,
    open_work_folder,
    read_site_settings,
)
from fedquilt.deploy.study import ServerAddress

REGISTERED = "Successfully registered client"
MAX_STARTS = 5  # of FLARE's client within RESTART_SECONDS
RESTART_SECONDS = 300.0
TRY_SECONDS = 10.0  # of one try to reach the server, by a site that waits for it
REASON = re.compile(r"refused|denied|not allowed|error|unauthenticated|fail", re.IGNORECASE)


def open_kit(folder: Path) -> Kit:
    """Return a site's kit; raise UserError unless it is valid and of this version."""
    kit = Kit(folder.resolve())
    kit.require()
    check_seal(kit)
    check_amendments(kit)
    return kit


def start_site(
    folder: Path, settings_path: Path, say: Callable[[str], None], *, waits: bool = False
) -> None:
    """Take part in the study until interrupted; all FLARE processes end with it.

    A site that ``waits`` for its server does so however long it takes, as a service has to.
    """
    kit, settings = open_kit(folder), read_site_settings(settings_path)
    open_work_folder(settings)
    if (note := expiry_note(kit)) is not None:
        say(note)
    study, site = kit.study(), kit.role()
    workspace = Workspace.of_site(Path(settings.work_folder), study, site)
    organisation, health = study.site(site).organisation, HealthNotes(workspace)
    starts: list[float] = []
    failures = FailureWatch(Path(settings.work_folder))
    with claim(workspace), closing(health):
        while True:
            wait_for_server(kit, study.server, settings.register_seconds, health, say, waits=waits)
            starts = [*starts, time.monotonic()][-MAX_STARTS:]
            write_site_workspace(workspace, kit, study, settings_path)
            process = site_process(workspace, site, organisation)
            try:
                _wait_until_registered(process, settings)
                say(f"{site} has joined {study.name} at {study.server.host}:{study.server.port}")
                while process.wait(1.0) is None:
                    failures.say_new(say)
                    health.note(is_connected=is_connected(process.pid, study.server.port))
            finally:
                process.end()
            if len(starts) == MAX_STARTS and time.monotonic() - starts[0] < RESTART_SECONDS:
                raise UserError(f"FLARE's client ended {MAX_STARTS} times; see {process.log}")
            say("FLARE's client ended; restarting it")


class ServerNotReached(UserError):
    """Raised when no connection to the server can be opened: it may not have been started yet."""


def wait_for_server(
    kit: Kit,
    address: ServerAddress,
    seconds: float,
    health: HealthNotes,
    say: Callable[[str], None],
    *,
    waits: bool,
) -> None:
    """Raise ServerNotReached after ``seconds`` without a connection, or try again if it waits."""
    told = ""
    while True:
        try:
            check_connection(kit, address, TRY_SECONDS if waits else seconds)
            return
        except ServerNotReached as error:
            if not waits:
                raise
            health.note(is_connected=False)
            if str(error) != told:
                told = str(error)
                say(f"{told} Trying again.")


class FailureWatch:
    """Shows failures that the audit log records on the site's terminal."""

    def __init__(self, work: Path) -> None:
        self._work = work
        _, self._end = read_events(work / AUDIT_FILE)

    def say_new(self, say: Callable[[str], None]) -> None:
        events, self._end = read_events(self._work / AUDIT_FILE, self._end)
        for event in events:
            if event.get("event") in FAILURES:
                what = event.get("error") or event.get("what") or event.get("reason") or ""
                say(f"{event['event']}: {what}, see {self._work / SITE_LOG}")


def _wait_until_registered(process: FlareProcess, settings: SiteSettings) -> None:
    deadline = time.monotonic() + settings.register_seconds
    while REGISTERED not in process.output():
        code = process.wait(0.2)
        if code is not None or time.monotonic() > deadline:
            failure = f"ended with code {code}" if code is not None else "was not registered"
            lines = [shown(each) for each in process.output().splitlines() if REASON.search(each)]
            raise UserError(
                f"the site {failure} within {settings.register_seconds:.0f} s: "
                f"{lines[-1].strip() if lines else 'FLARE gave no reason'} (see {process.log})"
            )


def check_connection(kit: Kit, address: ServerAddress, seconds: float) -> None:
    """Raise UserError, with the reason, unless the server accepts the kit's certificate in time."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            _handshake(kit, address)
            return
        except (ConnectionError, TimeoutError, socket.gaierror) as error:
            if time.monotonic() > deadline:
                raise ServerNotReached(
                    f"{address.host}:{address.port} could not be reached within {seconds:.0f} s "
                    f"({error}); is the server started, and does the firewall allow the connection?"
                ) from error
            time.sleep(min(1.0, seconds / 10))
        except ssl.SSLError as error:
            why = getattr(error, "reason", None) or error.args[-1]
            raise UserError(
                f"{address.host}:{address.port} and this kit do not accept each other: {why}; the "
                "kit is of another study, expired or altered"
            ) from error


def _handshake(kit: Kit, address: ServerAddress) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(kit.authority)
    context.load_cert_chain(kit.certificate, kit.key)
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((address.host, address.port), timeout=5) as connection,
        context.wrap_socket(connection, server_hostname=address.host) as secure,
    ):
        # With TLS 1.3 a refused certificate shows only here: FLARE just closes the connection.
        if not secure.recv(1):
            raise ssl.SSLError("the server refused the kit's certificate")
