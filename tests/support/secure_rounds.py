"""A secure study of five sites, run by its server, and what it left on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.secure_study import (
    FIVE,
    LossyChannel,
    secure_study,
)
from support.tiny_federation import make_method

from fedquilt.core.tree import Weights
from fedquilt.deploy.server.run import ServerRun
from fedquilt.deploy.study import Study
from fedquilt.runs.finished_run import read_run
from fedquilt.runs.trained_models import load_weights

STEPS = ("keys", "shares", "train", "unmask")
EVERYONE = tuple(f"site-{number}" for number in range(5))


def five_site_study(**settings: Any) -> Study:
    return secure_study(make_method("fedavg-pl"), annotated=FIVE, **settings)


def run_study(
    study: Study, channel: LossyChannel, folder: Path, *, resume: bool = False
) -> ServerRun:
    run = ServerRun(study, folder, channel)
    run.run(resume=resume)
    return run


def final_weights(folder: Path) -> Weights:
    run = read_run(folder)
    return load_weights(run.folder, run.models.card, "global")


def history_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]


def events_of(path: Path, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if line["event"] == event]
