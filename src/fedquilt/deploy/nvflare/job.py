"""write_job(): a FLARE job of a study, JSON only; every machine runs its installed fedquilt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedquilt.core.atomic_files import write_json
from fedquilt.deploy.study import Study

STUDY_FILE = "fedquilt_study.json"  # in the job's configuration folder
TOPIC = "fedquilt"  # of the coordinator's commands to a running job
RESULT = "run"  # the folder in the job's result that the coordinator fetches
TASK = "answer"  # the only FLARE task; the message says what to do
NO_FILTERS: dict[str, Any] = {
    "task_data_filters": [],
    "task_result_filters": [],
    "components": [],
}
POLL_SECONDS = 0.2  # how often a site asks for tasks; FLARE's default of 2 s is too slow


def write_job(study: Study, folder: Path, *, resume: bool) -> Path:
    """Write the job into ``folder`` and return it, ready to be submitted."""
    config = folder / "app" / "config"
    config.mkdir(parents=True, exist_ok=True)
    write_json(
        folder / "meta.json",
        {
            "name": study.name,
            "resource_spec": {},
            "min_clients": 1,  # our own quorum also names the missing sites
            "deploy_map": {"app": ["@ALL"]},
        },
    )
    write_json(config / "config_fed_server.json", _server_config(resume))
    write_json(config / "config_fed_client.json", _client_config())
    write_json(config / STUDY_FILE, study.to_dict())
    return folder


def _server_config(resume: bool) -> dict[str, Any]:
    controller = "fedquilt.deploy.nvflare.controller.StudyController"
    return {
        "format_version": 2,
        "server": {"task_request_interval": POLL_SECONDS},
        "task_request_interval": POLL_SECONDS,
        "dead_client_grace_period": 5.0,
        "dead_client_check_lead_time": 2.0,
        **NO_FILTERS,
        "workflows": [{"id": "study", "path": controller, "args": {"resume": resume}}],
    }


def _client_config() -> dict[str, Any]:
    executor = "fedquilt.deploy.nvflare.executor.SiteExecutor"
    return {
        "format_version": 2,
        **NO_FILTERS,
        "executors": [{"tasks": [TASK], "executor": {"path": executor, "args": {}}}],
    }
