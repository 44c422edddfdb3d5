"""A kit has one role and one version of fedquilt."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedquilt.core.errors import UserError
from fedquilt.core.version import VERSION
from fedquilt.deploy.kit import COORDINATOR, SERVER, Kit


def _kit(folder: Path, **card: str) -> Kit:
    kit = Kit(folder)
    kit.startup.mkdir(parents=True)
    kit.card.write_text(json.dumps({"role": "north", "fedquilt": VERSION} | card))
    return kit


def test_another_role_is_refused(tmp_path: Path) -> None:
    site, server = _kit(tmp_path / "a"), _kit(tmp_path / "b", role=SERVER)
    site.require()
    server.require(SERVER)
    with pytest.raises(UserError, match="kit of north; expected a server"):
        site.require(SERVER)
    with pytest.raises(UserError, match="kit of server; expected a site"):
        server.require()
    with pytest.raises(UserError, match="kit of server; expected a coordinator"):
        server.require(COORDINATOR)


def test_another_version_is_refused_with_both_named(tmp_path: Path) -> None:
    kit = _kit(tmp_path, fedquilt="0.0.1")
    with pytest.raises(UserError, match=f"made by fedquilt 0.0.1, this is {VERSION}"):
        kit.require()


def test_a_folder_that_is_not_a_kit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a complete kit"):
        Kit(tmp_path).require()
