"""Who missed the survey, and what a study therefore does without until its end."""

from __future__ import annotations

import json
from pathlib import Path

from fedquilt.deploy.study import Study
from fedquilt.payload import Gather
from fedquilt.sent_parts import example_data

FOR_EVERYBODY = "annotators"  # study.toml says who annotates what: nothing is lost without it


def survey_notices(study: Study, trail: Path) -> list[str]:
    """By the server's audit trail, which outlives the job that asked; one sentence per site."""
    method = study.recipe.method
    asked = {**method.survey(example_data(study.task))}
    asked.pop(FOR_EVERYBODY, None)
    if not asked:
        return []
    answered, lost = _answered(trail), "its part is missing in the totals"
    if any(isinstance(part, Gather) for part in asked.values()):  # FedAwS: no row ever reaches it
        lost = "what the server makes of it for each site, this one never receives"
    return [
        f"{name} missed the survey before the first round, which is not repeated. What "
        f"{type(method).__name__} asks there ({', '.join(asked)}) stays unknown of {name} in this "
        f"study: {lost}; only a new study asks again"
        for name in study.site_names
        if name not in answered
    ]


def _answered(trail: Path) -> set[str]:
    found = set()
    for line in trail.read_text(encoding="utf-8").splitlines():
        try:
            event = json.loads(line)
        except json.JSONDecodeError:  # cut short by a crash
            continue
        if (event.get("event"), event.get("kind")) == ("received", "survey"):
            found.add(event["site"])
    return found
