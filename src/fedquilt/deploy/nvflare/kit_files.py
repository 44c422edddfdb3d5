"""Write the FLARE settings in a kit's ``local`` folder, at every start, with tighter rights.

They allow no shell, no code in jobs, no components but fedquilt's, and no transfer of site logs.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from fedquilt.core.atomic_files import write_json
from fedquilt.deploy.kit import Kit

if TYPE_CHECKING:
    from fedquilt.deploy.study import Study

ALLOWED_CLASSES = "fedquilt.deploy.nvflare."  # with the dot FLARE reads it as a package
SITE_FILE = "fedquilt.json"  # path of site.toml; FLARE would send it if in resources.json

PROGRESS = "study_progress"  # fedquilt's own server command, and the right to use it
# Rights of the coordinator, the only role with any; app_command asks a job for its status.
FORBIDDEN = ("clone_job", "operate", "shell_commands", "byoc", "server-predeployed-flwr")
ALLOWED = ("submit_job", "manage_job", "download_job", "view", "app_command", PROGRESS)


def write_server_files(kit: Kit, study: Study) -> None:
    settings = _defaults(kit)
    settings["servers"][0]["heart_beat_timeout"] = study.rules.lost_seconds
    storage = settings["snapshot_persistor"]["args"]["storage"]["args"]
    storage["root_dir"] = str(kit.work.resolve() / "snapshots")
    for component in settings["components"]:
        if component["id"] == "job_manager":
            component["args"]["uri_root"] = str(kit.work.resolve() / "jobs")
        if component["id"] == "job_scheduler":
            component["args"]["max_jobs"] = 2  # one may still be ending when the next begins
    _write(kit, settings)


def write_site_files(kit: Kit, site_settings: str) -> None:
    settings = _defaults(kit)
    settings["allow_log_streaming"] = False
    settings["components"] = [
        each for each in settings["components"] if each["id"] != "site_log_streamer"
    ]
    _write(kit, settings)
    write_json(kit.local / SITE_FILE, {"settings": site_settings})


def _defaults(kit: Kit) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads((kit.local / "resources.json.default").read_text())
    settings["class_allow_list"] = [ALLOWED_CLASSES]
    return settings


def _write(kit: Kit, settings: dict[str, Any]) -> None:
    permissions = dict.fromkeys(FORBIDDEN, "none") | dict.fromkeys(ALLOWED, "any")
    write_json(kit.local / "resources.json", settings)
    write_json(
        kit.local / "authorization.json",
        {"format_version": "1.0", "permissions": {"project_admin": permissions}},
    )
    # FLARE requires the default file too, although it reads the other one.
    shutil.copy(kit.local / "authorization.json", kit.local / "authorization.json.default")
    (kit.folder / "transfer").mkdir(exist_ok=True)
    kit.work.mkdir(exist_ok=True)
