"""A FLARE job of a study: plain JSON and no code; every machine runs the fedquilt it installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedquilt.core.atomic_files import write_json
from fedquilt.deploy.study import Study

STUDY_FILE = "fedquilt_study.json"  # among the job's configuration files
TOPIC = "fedquilt"  # of the commands that the coordinator may give a running job
RESULT = "run"  # the folder of the job's result that is fetched
TASK = "answer"  # whatever is asked is in the message itself
NO_FILTERS: dict[str, Any] = {
    "task_data_filters": [],
    "task_result_filters": [],
    "components": [],
}
POLL_SECONDS = 0.2  # how often a site asks for work; FLARE's own 2 s would be most of a round


def write_job(study: Study, folder: Path, *, resume: bool) -> Path:
    """The job's folder, ready to be submitted."""
    config = folder / "app" / "config"
    config.mkdir(parents=True, exist_ok=True)
    write_json(
        folder / "meta.json",
        {
            "name": study.name,
            "resource_spec": {},
            "min_clients": 1,  # the quorum is ours: it names who is missing
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
