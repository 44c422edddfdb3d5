"""start_server(): runs the study's server until it is interrupted."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from fedquilt.core.errors import UserError
from fedquilt.deploy.kit import SERVER, Kit
from fedquilt.deploy.nvflare.processes import (
    FlareProcess,
    claim,
    listening_addresses,
    server_process,
)
from fedquilt.deploy.nvflare.seal import check_seal, expiry_note
from fedquilt.deploy.nvflare.workspace import Workspace, write_server_workspace
from fedquilt.deploy.server.decisions import Decisions

OPEN_SECONDS = 90.0  # wait for the port to be open


def start_server(folder: Path, say: Callable[[str], None]) -> None:
    """Run the server. All FLARE processes end with it; sites reconnect to it on their own."""
    kit = Kit(folder.resolve())
    kit.require(SERVER)
    check_seal(kit)
    study, workspace = kit.study(), Workspace.of_kit(kit)
    if (note := expiry_note(kit)) is not None:
        say(note)
    with claim(workspace):
        excluded = Decisions(kit.run_folder(study)).excluded()
        write_server_workspace(workspace, kit, study, excluded)
        process = server_process(workspace)
        try:
            _wait_until_open(process, study.server.bind, study.server.port)
            say(f"the server of {study.name} listens on {study.server.bind}:{study.server.port}")
            while (code := process.wait(1.0)) is None:
                pass
        finally:
            process.end()
    raise UserError(f"FLARE's server ended with code {code}; see {process.log}")


def _wait_until_open(process: FlareProcess, address: str, port: int) -> None:
    deadline = time.monotonic() + OPEN_SECONDS
    while not (found := listening_addresses(process.pid, port)):
        if process.wait(0.2) is not None or time.monotonic() > deadline:
            raise UserError(
                f"the server did not open port {port}: is the port free, and {address} an address "
                f"of this machine? See {process.log}"
            )
    if found != {address}:
        raise UserError(
            f"the server listens on {', '.join(sorted(found))} instead of {address}: this "
            "version of FLARE is not supported"
        )
