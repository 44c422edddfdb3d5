"""Workspace: the folder that FLARE runs in, written anew at every start.

Its keys and certificates are copies of the sealed kit's. All settings are written here, so that
none of them can come from a kit or an earlier run: FLARE would run the components and log handlers
that they name. They allow no shell, no code in jobs, no components but fedquilt's, and no transfer
of site logs.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedquilt.core.atomic_files import write_json
from fedquilt.core.log_files import KEPT_LOGS, MAX_LOG_BYTES
from fedquilt.core.shown_text import LOG_FORMAT
from fedquilt.deploy.kit import Kit

if TYPE_CHECKING:
    from fedquilt.deploy.study import Study

ALLOWED_CLASSES = "fedquilt.deploy.nvflare."  # with the dot FLARE reads it as a package
KIT_FILE = "fedquilt.json"  # names the kit and site.toml; FLARE would send it in resources.json

PROGRESS = "study_progress"  # fedquilt's own server commands, and the rights to use them
DECIDE = "study_decide"
# Rights of the coordinator, the only role with any; app_command asks a job for its status.
FORBIDDEN = ("clone_job", "operate", "shell_commands", "byoc", "server-predeployed-flwr")
ALLOWED = ("submit_job", "manage_job", "download_job", "view", "app_command", PROGRESS, DECIDE)
LOG_FILE = re.compile(r"(audit|log|error_log|log_fl)\.(log|txt|json)(\.\d+)?")
COMPONENTS = "nvflare.app_common"
EXCLUDED_FILE = "disabled_clients.json"  # FLARE's server admits none of these


@dataclass(frozen=True)
class Workspace:
    """A folder for FLARE's files, its log and its process number."""

    folder: Path

    @classmethod
    def of_site(cls, work: Path, study: Study, site: str) -> Workspace:
        """The workspace of a site in its own work folder: nothing is written into its kit."""
        return cls(work.resolve() / "flare" / study.name / site)

    @classmethod
    def of_kit(cls, kit: Kit) -> Workspace:
        """The workspace of a server or coordinator, in its kit."""
        return cls(kit.work.resolve() / "flare")

    @property
    def root(self) -> Path:
        """What FLARE calls the workspace."""
        return self.folder / "workspace"

    @property
    def local(self) -> Path:
        return self.root / "local"

    @property
    def startup(self) -> Path:
        return self.root / "startup"

    @property
    def log(self) -> Path:
        return self.folder / "flare.log"

    @property
    def process_file(self) -> Path:
        return self.folder / "flare.pid"


def write_server_workspace(
    workspace: Workspace, kit: Kit, study: Study, excluded: Sequence[str] = ()
) -> None:
    identity = {
        "name": study.name,
        "service": {"target": f"{study.server.host}:{study.server.port}", "scheme": "grpc"},
        "admin_server": study.server.host,
        "admin_port": study.server.port,
        **_credentials("server"),
    }
    _begin(workspace, kit, {"fed_server.json": {"format_version": 2, "servers": [identity]}})
    _write(workspace, kit, _server_resources(kit.work.resolve(), study), {})
    write_json(workspace.root / EXCLUDED_FILE, {"disabled_clients": sorted(excluded)})


def write_site_workspace(workspace: Workspace, kit: Kit, study: Study, site_toml: Path) -> None:
    service = {"target": f"{study.server.host}:{study.server.port}", "scheme": "grpc"}
    server = {"name": study.name, "service": service, "identity": study.server.host[:64]}
    client = {"fqsn": kit.role(), "is_leaf": True, **_credentials("client")}
    config = {"format_version": 2, "servers": [server], "client": client}
    _begin(workspace, kit, {"fed_client.json": config})
    resources = {
        "allow_log_streaming": False,
        "client": {"retry_timeout": 30, "compression": "Gzip"},
        "components": [
            _component(
                "resource_manager",
                "resource_managers.gpu_resource_manager.GPUResourceManager",
                num_of_gpus=0,
                mem_per_gpu_in_GiB=0,
                expiration_period=300,
            ),
            _component(
                "resource_consumer",
                "resource_consumers.gpu_resource_consumer.GPUResourceConsumer",
            ),
            _component(
                "process_launcher",
                "job_launcher.client_process_launcher.ClientProcessJobLauncher",
            ),
        ],
    }
    _write(workspace, kit, resources, {"settings": str(site_toml.resolve())})


def write_coordinator_workspace(workspace: Workspace, kit: Kit, study: Study, login: str) -> None:
    admin = {
        "project_name": study.name,
        "username": login,
        "server_identity": study.server.host[:64],
        "scheme": "grpc",
        "host": study.server.host,
        "port": study.server.port,
        "connection_security": "mtls",
        "uid_source": "user_input",
        "with_file_transfer": True,
        "upload_dir": "transfer",
        "download_dir": "transfer",
        "client_key": "client.key",
        "client_cert": "client.crt",
        "ca_cert": "rootCA.pem",
    }
    _begin(workspace, kit, {"fed_admin.json": {"format_version": 1, "admin": admin}})
    _write(workspace, kit, {}, {})


def kit_files(root: Path) -> dict[str, Path]:
    """Return the paths that FLARE's processes find their kit and settings by."""
    found = json.loads((root / "local" / KIT_FILE).read_text(encoding="utf-8"))
    return {name: Path(path) for name, path in found.items()}


def _credentials(name: str) -> dict[str, str]:
    return {
        "ssl_private_key": f"{name}.key",
        "ssl_cert": f"{name}.crt",
        "ssl_root_cert": "rootCA.pem",
        "connection_security": "mtls",
    }


def _component(name: str, path: str, **arguments: Any) -> dict[str, Any]:
    return {"id": name, "path": f"{COMPONENTS}.{path}", "args": arguments}


def _server_resources(work: Path, study: Study) -> dict[str, Any]:
    storage = f"{COMPONENTS}.storages.filesystem_storage.FilesystemStorage"
    snapshots = {"root_dir": str(work / "snapshots"), "uri_root": "/"}
    jobs = {"uri_root": str(work / "jobs"), "job_store_id": "job_store"}
    return {
        "servers": [
            {
                "admin_storage": "transfer",
                "max_num_clients": 100,
                "heart_beat_timeout": study.rules.lost_seconds,
                "admin_timeout": 10.0,
            }
        ],
        "snapshot_persistor": {
            "path": f"{COMPONENTS}.state_persistors.storage_state_persistor.StorageStatePersistor",
            "args": {"uri_root": "/", "storage": {"path": storage, "args": snapshots}},
        },
        "components": [
            # One job may still be ending when the next begins.
            _component(
                "job_scheduler", "job_schedulers.job_scheduler.DefaultJobScheduler", max_jobs=2
            ),
            {
                "id": "job_manager",
                "path": "nvflare.apis.impl.job_def_manager.SimpleJobDefManager",
                "args": jobs,
            },
            {"id": "job_store", "path": storage},
            _component(
                "process_launcher",
                "job_launcher.server_process_launcher.ServerProcessJobLauncher",
            ),
        ],
    }


def _begin(workspace: Workspace, kit: Kit, startup: dict[str, Any]) -> None:
    """Empty the folder, except for FLARE's logs, and copy the kit's keys and certificates."""
    for folder in (workspace.folder, workspace.root):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    for path in workspace.root.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.is_symlink() or not LOG_FILE.fullmatch(path.name):
            path.unlink()
    for folder in (workspace.startup, workspace.local, workspace.root / "transfer"):
        folder.mkdir()
    for path in (kit.authority, kit.certificate, kit.key):
        shutil.copyfile(path, workspace.startup / path.name)
    (workspace.startup / kit.key.name).chmod(0o600)
    for name, content in startup.items():
        write_json(workspace.startup / name, content)


def _write(
    workspace: Workspace, kit: Kit, resources: dict[str, Any], files: dict[str, str]
) -> None:
    permissions = dict.fromkeys(FORBIDDEN, "none") | dict.fromkeys(ALLOWED, "any")
    rights = {"format_version": "1.0", "permissions": {"project_admin": permissions}}
    settings = {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [ALLOWED_CLASSES],
    }
    content = {
        "resources.json": settings | resources,
        "resources.json.default": settings | resources,
        "authorization.json": rights,
        # FLARE requires the default file too, although it reads the other one.
        "authorization.json.default": rights,
        "log_config.json": _log_settings(),
        KIT_FILE: {"kit": str(kit.folder.resolve())} | files,
    }
    for name, each in content.items():
        write_json(workspace.local / name, each)


def _log_settings() -> dict[str, Any]:
    """Return settings of Python's logging: a rotating file, and one for errors."""

    def rotating(name: str, level: str) -> dict[str, Any]:
        return {
            "class": "logging.handlers.RotatingFileHandler",
            "level": level,
            "formatter": "plain",
            "filename": name,
            "maxBytes": MAX_LOG_BYTES,
            "backupCount": KEPT_LOGS,
        }

    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "plain": {
                "()": "fedquilt.core.shown_text.EscapedFormatter",
                "fmt": LOG_FORMAT,
            }
        },
        "handlers": {
            "console": {
                "class": "logging.StreamHandler",
                "level": "DEBUG",
                "formatter": "plain",
                "stream": "ext://sys.stdout",
            },
            "file": rotating("log.txt", "DEBUG"),
            "errors": rotating("error_log.txt", "ERROR"),
        },
        "loggers": {"root": {"level": "INFO", "handlers": ["console", "file", "errors"]}},
    }
