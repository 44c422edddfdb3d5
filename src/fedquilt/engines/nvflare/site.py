"""start_site(): join a study with a kit, stay in it, and say why when that cannot be."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from fedquilt.deploy.kit import Kit
from fedquilt.deploy.site_settings import SiteSettings, read_site_settings
from fedquilt.engines.nvflare.greeting import greet
from fedquilt.engines.nvflare.local_files import write_site_files
from fedquilt.engines.nvflare.processes import FlareProcess, claim, site_process
from fedquilt.engines.nvflare.seal import check_seal
from fedquilt.errors import UserError

REGISTERED = "Successfully registered client"
RESTARTS = 5  # of FLARE's own program, each within RESTART_SECONDS of the one before
RESTART_SECONDS = 300.0
TELLING = re.compile(r"refused|denied|not allowed|error|unauthenticated|fail", re.IGNORECASE)


def open_kit(folder: Path) -> Kit:
    """A site's kit that is whole, sealed, in time and of this version."""
    kit = Kit(folder.resolve())
    kit.require()
    check_seal(kit)
    return kit


def start_site(folder: Path, settings_path: Path, say: Callable[[str], None]) -> None:
    """Until interrupted. Everything that FLARE starts ends with it."""
    kit, settings = open_kit(folder), read_site_settings(settings_path)
    study, site = kit.study(), kit.role()
    write_site_files(kit, str(settings_path.resolve()))
    organisation = study.site(site).organisation
    greet(kit, study.server, settings.register_seconds)
    starts: list[float] = []
    with claim(kit):
        while True:
            starts = [*starts, time.monotonic()][-RESTARTS:]
            process = site_process(kit, site, organisation)
            try:
                _wait_until_registered(process, settings)
                say(f"{site} has joined {study.name} at {study.server.host}:{study.server.port}")
                while process.wait(1.0) is None:
                    pass
            finally:
                process.end()
            if len(starts) == RESTARTS and time.monotonic() - starts[0] < RESTART_SECONDS:
                raise UserError(f"FLARE's client ended {RESTARTS} times; see {process.log}")
            say("FLARE's client ended; it is started again")


def _wait_until_registered(process: FlareProcess, settings: SiteSettings) -> None:
    deadline = time.monotonic() + settings.register_seconds
    while REGISTERED not in process.said():
        code = process.wait(0.2)
        if code is not None or time.monotonic() > deadline:
            ended = f"ended with code {code}" if code is not None else "was not registered"
            lines = [line for line in process.said().splitlines() if TELLING.search(line)]
            raise UserError(
                f"the site {ended} within {settings.register_seconds:.0f} s: "
                f"{lines[-1].strip() if lines else 'FLARE gave no reason'} (see {process.log})"
            )
