"""Processes of a kit: only one at a time, and none left over after a kill."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest
from digits_recipe import recipe_settings
from running_study import RunningStudy

from fedquilt.core.errors import UserError
from fedquilt.deploy.kit import Kit
from fedquilt.deploy.nvflare.processes import claim, listening_addresses
from fedquilt.deploy.nvflare.workspace import Workspace


def test_a_restart_ends_processes_left_by_a_killed_one(tmp_path: Path) -> None:
    # Left alone, FLARE listens on all addresses unless the host name is loopback.
    with RunningStudy(tmp_path, recipe_settings("fedavg"), host="fl.example.org") as study:
        study.start_server()
        pid_file = Workspace.of_kit(Kit(study.kits["server"])).process_file
        address = study.study.server
        study.wait_until(pid_file.exists, 60, "server")
        old = int(pid_file.read_text())
        study.wait_until(lambda: listening_addresses(old, address.port), 60, "port")
        assert listening_addresses(old, address.port) == {"127.0.0.1"}
        with pytest.raises(UserError, match="already started by another process"):
            claim(Workspace.of_kit(Kit(study.kits["server"])))
        psutil.Process(study.processes["server"].pid).kill()  # fedquilt's process, without FLARE's
        study.processes["server"].wait()
        assert psutil.pid_exists(old)
        study.start_server()
        study.wait_until(lambda: int(pid_file.read_text()) != old, 60, "new server")
        new = int(pid_file.read_text())
        study.wait_until(lambda: listening_addresses(new, address.port), 60, "port")
        time.sleep(0.5)
        assert not psutil.pid_exists(old) or psutil.Process(old).status() == "zombie"
