"""FLARE's folder is written from the installed package at every start."""

from __future__ import annotations

import json
from pathlib import Path

from fedquilt.deploy.kit import COORDINATOR, SERVER, Kit
from fedquilt.deploy.nvflare.workspace import (
    Workspace,
    kit_files,
    write_coordinator_workspace,
    write_server_workspace,
    write_site_workspace,
)


def _names(workspace: Workspace) -> set[str]:
    files = [path for path in workspace.root.rglob("*") if not path.is_dir()]
    return {path.relative_to(workspace.root).as_posix() for path in files}


def test_only_logs_survive_a_start(kits: Path, tmp_path: Path) -> None:
    kit = Kit(kits / "site-0")
    workspace = Workspace.of_site(tmp_path, kit.study(), "site-0")
    write_site_workspace(workspace, kit, kit.study(), tmp_path / "site.toml")
    first = _names(workspace)
    assert first == {
        *(f"startup/{name}" for name in ("client.crt", "client.key", "rootCA.pem")),
        *(f"startup/{name}" for name in ("fed_client.json",)),
        *(f"local/{name}" for name in ("fedquilt.json", "log_config.json")),
        *(
            f"local/{name}.json{end}"
            for name in ("resources", "authorization")
            for end in ("", ".default")
        ),
    }
    for name in ("log.txt", "log.txt.3", "audit.log"):
        (workspace.root / name).touch()
    planted = ["msgpack.py", "local/custom/decomposers/x.py", "job/app/custom/y.py", "startup/z.py"]
    for name in planted:
        (workspace.root / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace.root / name).write_text("raise SystemExit")
    (workspace.root / "error_log.txt").symlink_to(kit.key)
    (workspace.local / "resources.json").write_text('{"class_allow_list": ["*"]}')
    write_site_workspace(workspace, kit, kit.study(), tmp_path / "site.toml")
    assert _names(workspace) == first | {"log.txt", "log.txt.3", "audit.log"}
    settings = json.loads((workspace.local / "resources.json").read_text())
    assert settings["class_allow_list"] == ["fedquilt.deploy.nvflare."]
    assert settings["allow_log_streaming"] is False
    rights = json.loads((workspace.local / "authorization.json").read_text())["permissions"]
    assert rights["project_admin"]["shell_commands"] == "none"
    assert rights["project_admin"]["byoc"] == "none"


def test_nothing_is_written_into_a_sites_kit(kits: Path, tmp_path: Path) -> None:
    kit = Kit(kits / "site-0")
    before = sorted(kit.folder.rglob("*"))
    workspace = Workspace.of_site(tmp_path, kit.study(), "site-0")
    write_site_workspace(workspace, kit, kit.study(), tmp_path / "site.toml")
    assert sorted(kit.folder.rglob("*")) == before
    assert kit_files(workspace.root) == {"kit": kit.folder, "settings": tmp_path / "site.toml"}


def test_the_folder_is_its_owners_only(kits: Path, tmp_path: Path) -> None:
    kit = Kit(kits / "site-0")
    workspace = Workspace.of_site(tmp_path, kit.study(), "site-0")
    write_site_workspace(workspace, kit, kit.study(), tmp_path / "site.toml")
    assert workspace.folder.stat().st_mode & 0o777 == 0o700
    assert workspace.root.stat().st_mode & 0o777 == 0o700
    assert (workspace.startup / "client.key").stat().st_mode & 0o777 == 0o600


def test_server_and_coordinator_connect_where_the_study_says(kits: Path, tmp_path: Path) -> None:
    server, coordinator = Kit(kits / SERVER), Kit(kits / COORDINATOR)
    study = server.study()
    workspaces = [Workspace(tmp_path / "server"), Workspace(tmp_path / "coordinator")]
    write_server_workspace(workspaces[0], server, study)
    write_coordinator_workspace(workspaces[1], coordinator, study, "me@tiny.org")
    told = json.loads((workspaces[0].startup / "fed_server.json").read_text())["servers"][0]
    assert told["service"]["target"] == "localhost:8002"
    resources = json.loads((workspaces[0].local / "resources.json").read_text())
    assert resources["servers"][0]["heart_beat_timeout"] == study.rules.lost_seconds
    admin = json.loads((workspaces[1].startup / "fed_admin.json").read_text())["admin"]
    assert (admin["host"], admin["port"], admin["username"]) == ("localhost", 8002, "me@tiny.org")
