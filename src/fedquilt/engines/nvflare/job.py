"""A FLARE job of a study: plain JSON and no code; every machine runs the fedquilt it installed."""

from __future__ import annotations

from pathlib import Path

from fedquilt.atomic_files import write_json
from fedquilt.deploy.study import Study

STUDY_FILE = "fedquilt_study.json"  # among the job's configuration files
TASKS = ("survey", "train")
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
    write_json(
        config / "config_fed_server.json",
        {
            "format_version": 2,
            "server": {"heart_beat_timeout": 600, "task_request_interval": POLL_SECONDS},
            "task_request_interval": POLL_SECONDS,
            "dead_client_grace_period": 5.0,
            "dead_client_check_lead_time": 2.0,
            "task_data_filters": [],
            "task_result_filters": [],
            "components": [],
            "workflows": [
                {
                    "id": "study",
                    "path": "fedquilt.engines.nvflare.controller.StudyController",
                    "args": {"resume": resume},
                }
            ],
        },
    )
    write_json(
        config / "config_fed_client.json",
        {
            "format_version": 2,
            "executors": [
                {
                    "tasks": list(TASKS),
                    "executor": {
                        "path": "fedquilt.engines.nvflare.executor.SiteExecutor",
                        "args": {},
                    },
                }
            ],
            "task_data_filters": [],
            "task_result_filters": [],
            "components": [],
        },
    )
    write_json(config / STUDY_FILE, study.to_dict())
    return folder
