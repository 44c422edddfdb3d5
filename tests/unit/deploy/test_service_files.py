"""The systemd unit and the container file: linted here, started nowhere."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest
from support.markdown_pages import ROOT
from typer.core import TyperGroup
from typer.main import get_command

from fedquilt.cli.main import app

UNIT = ROOT / "packaging" / "fedquilt-site.service"
CONTAINER = ROOT / "packaging" / "Containerfile"
INSTRUCTIONS = ["FROM", "COPY", "RUN", "USER", "VOLUME", "HEALTHCHECK", "CMD"]


def arguments_of(words: list[str]) -> list[str]:
    """The arguments of a fedquilt command, whose verbs have to exist."""
    program, *rest = words
    assert Path(program).name == "fedquilt"
    command = get_command(app)
    while isinstance(command, TyperGroup):
        command = command.commands[rest.pop(0)]
    assert len(rest) == len([each for each in command.params if each.param_type_name == "argument"])
    return rest


def unit() -> ConfigParser:
    parser = ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(UNIT.read_text())
    return parser


def test_the_unit_runs_a_command_that_exists() -> None:
    service = unit()["Service"]
    kit, settings = arguments_of(shlex.split(service["ExecStart"]))
    work = Path(service["ReadWritePaths"])
    assert work.parent == Path(kit).parent == Path(settings).parent
    assert (service["User"], service["UMask"]) == ("fedquilt", "0077")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_no_fault_in_the_unit(tmp_path: Path) -> None:
    command = unit()["Service"]["ExecStart"].split()[0]
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace(command, sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    copy.write_text(copy.read_text().replace("RestartSec=", "RestartSecs="))
    again = subprocess.run(
        ["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False
    )
    assert "RestartSecs" in again.stderr  # it can find one


def test_the_container_file_runs_commands_that_exist() -> None:
    text = re.sub(r"^#.*\n", "", CONTAINER.read_text(), flags=re.MULTILINE)
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    found = {line.split()[0]: line.partition(" ")[2].strip() for line in lines}
    assert [line.split()[0] for line in lines] == INSTRUCTIONS
    assert re.fullmatch(r"python:3\.1[1-9]-slim", found["FROM"])
    assert found["USER"] == "fedquilt"
    command = json.loads(found["CMD"])
    health = json.loads(found["HEALTHCHECK"].partition("CMD ")[2])
    assert (command[1:3], health[1:3]) == (["site", "serve"], ["site", "health"])
    assert arguments_of(command) == arguments_of(health)
    assert json.loads(found["VOLUME"]) == ["/study/work"]
