"""Notices about sites that missed the survey before the first round."""

from __future__ import annotations

from pathlib import Path

from fedquilt.core.payload import Gather
from fedquilt.deploy.audit_chain import read_events
from fedquilt.deploy.study import Study
from fedquilt.privacy.sent_parts import example_data

# A part of every method's survey. The study file lists the annotators too, so a site that missed
# the survey loses nothing by it.
ANNOTATORS_PART = "annotators"


def survey_notices(study: Study, audit_log: Path) -> list[str]:
    """Return one sentence for each site that missed the survey, if the method needs its answer.

    The server's audit log says who answered: it also covers earlier jobs of the study.
    """
    method = study.recipe.method
    asked = {**method.survey(example_data(study.task))}
    asked.pop(ANNOTATORS_PART, None)
    if not asked:
        return []
    answered, lost = _answered_survey(audit_log), "the totals lack its part"
    if any(isinstance(part, Gather) for part in asked.values()):
        # FedAwS, for example: the server answers each site by what that site sent.
        lost = "it never receives what the server computes for each site from it"
    return [
        f"{name} missed the survey before the first round, which is not repeated. "
        f"{type(method).__name__} asks there for {', '.join(asked)}, which stays unknown for "
        f"{name} in this study: {lost}; start a new study to ask again"
        for name in study.site_names
        if name not in answered
    ]


def _answered_survey(audit_log: Path) -> set[str]:
    events, _ = read_events(audit_log)
    return {
        event["site"]
        for event in events
        if (event.get("event"), event.get("kind")) == ("received", "survey")
    }
