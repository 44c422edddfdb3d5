"""The commands of a study across hospitals, as far as they need no network."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from fedquilt.cli.main import app

COMMANDS = (
    ["deploy", "provision", "study.toml"],
    ["deploy", "approve", "study.toml", "north.csr"],
    ["deploy", "renew", "kits/north"],
    ["deploy", "submit", "study.toml"],
    ["deploy", "status", "study.toml"],
    ["deploy", "fetch", "study.toml"],
    ["site", "key", "north"],
    ["site", "request", "north", "North"],
    ["site", "accept", "kit", "--key", "north.key"],
    ["site", "check", "kit", "site.toml"],
    ["site", "start", "kit", "site.toml"],
    ["server", "start", "kit"],
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_without_the_extra_every_command_says_what_to_install(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedquilt.cli.long_running.find_spec", lambda name: None)
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert "pip install 'fedquilt[deploy]'" in result.stderr


@pytest.mark.parametrize("group", ["deploy", "site", "server"])
def test_groups_have_help(group: str) -> None:
    result = CliRunner().invoke(app, [group, "--help"])
    assert result.exit_code == 0
    assert "start" in result.stdout or "submit" in result.stdout
