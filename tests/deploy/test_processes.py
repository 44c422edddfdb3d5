"""Processes of a kit: one at a time, and none is left behind by a starter that was killed."""

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


def test_a_starter_that_was_killed_leaves_nothing_that_outlives_the_next(tmp_path: Path) -> None:
    # By itself FLARE listens on all addresses for any name that is not loopback.
    with RunningStudy(tmp_path, recipe_settings("fedavg"), host="fl.example.org") as study:
        study.start_server()
        pid_file = study.kits["server"] / "fedquilt" / "flare.pid"
        place = study.study.server
        study.wait_until(pid_file.exists, 60, "server")
        old = int(pid_file.read_text())
        study.wait_until(lambda: listening_addresses(old, place.port), 60, "port")
        assert listening_addresses(old, place.port) == {"127.0.0.1"}
        with pytest.raises(UserError, match="push each other out"):
            claim(Kit(study.kits["server"]))
        psutil.Process(study.processes["server"].pid).kill()  # the starter alone
        study.processes["server"].wait()
        assert psutil.pid_exists(old)
        study.start_server()
        study.wait_until(lambda: int(pid_file.read_text()) != old, 60, "new server")
        new = int(pid_file.read_text())
        study.wait_until(lambda: listening_addresses(new, place.port), 60, "port")
        time.sleep(0.5)
        assert not psutil.pid_exists(old) or psutil.Process(old).status() == "zombie"
