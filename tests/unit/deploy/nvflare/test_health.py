"""What ``fedquilt site health`` says of a site, and its exit codes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.site_folder import SiteFolder, make_site_folder
from typer.testing import CliRunner

from fedquilt.cli.main import app
from fedquilt.deploy.audit_log import AuditLog
from fedquilt.deploy.kit import Kit
from fedquilt.deploy.nvflare import health
from fedquilt.deploy.nvflare.health import HEALTH_FILE, HealthNotes
from fedquilt.deploy.nvflare.workspace import Workspace


class Site:
    """A site with a sealed kit, and what its process notes."""

    def __init__(self, kit: Kit, folder: SiteFolder) -> None:
        self.kit, self.folder = kit, folder
        self.workspace = Workspace.of_site(folder.work, kit.study(), kit.role())
        self.notes = HealthNotes(self.workspace)

    def said(self, code: int) -> str:
        words = ["site", "health", str(self.kit.folder), str(self.folder.settings)]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == code, result.output
        as_json = CliRunner().invoke(app, [*words, "--json"])
        assert json.loads(as_json.output)["exit_code"] == code
        return result.output


@pytest.fixture
def site(copy_of: Callable[[str], Kit], tmp_path: Path) -> Site:
    return Site(copy_of("site-0"), make_site_folder(tmp_path / "data", "fedavg"))


def test_a_site_that_takes_part(site: Site) -> None:
    site.notes.note(is_connected=True)
    assert site.said(0) == "site-0 takes part in tiny\n"


def test_a_site_without_a_connection(site: Site) -> None:
    site.notes.note(is_connected=False)
    assert "has no connection to localhost:8002" in site.said(4)


def test_a_site_that_was_never_started_or_has_ended(site: Site) -> None:
    assert "does not run" in site.said(3)
    site.notes.note(is_connected=True)
    site.notes.close()
    assert "does not run" in site.said(3)


def test_a_site_that_was_killed(site: Site) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    assert ended.wait(60) == 0
    site.notes.note(is_connected=True)
    path = site.workspace.folder / HEALTH_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pid": ended.pid}))
    assert "does not run" in site.said(3)


def test_a_site_that_hangs(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.notes.note(is_connected=True)
    monkeypatch.setattr(health, "STALE_SECONDS", -1.0)
    assert "does not run" in site.said(3)


@pytest.mark.parametrize("content", ["", "[]", '{"at": "x"}', "[" * 90_000, '{"at": []}'])
def test_an_odd_note(site: Site, content: str) -> None:
    site.notes.note(is_connected=True)
    (site.workspace.folder / HEALTH_FILE).write_text(content)
    assert "does not run" in site.said(3)


def test_what_needs_attention(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.notes.note(is_connected=True)
    log = AuditLog(site.folder.audit_log)
    log.record("failed", error="MemoryError")
    monkeypatch.setattr(health, "expiry_note", lambda kit: "the certificate expires in 3 days")
    full = SimpleNamespace(free=5 * 10**6)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    said = site.said(5)
    for part in ("expires in 3 days", "only 5 MB are free", "audit.jsonl is 'failed'"):
        assert part in said
    monkeypatch.undo()
    log.record("sent")
    site.said(0)


def test_notes_are_written_every_few_seconds_only(site: Site) -> None:
    site.notes.note(is_connected=True)
    site.notes.note(is_connected=False)
    site.said(0)
