"""The status of a study: its round, and which sites are missing since when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.remote_sites import make_study
from support.tiny_federation import make_method

from fedquilt.deploy.server.status import (
    Outcome,
    Status,
    current_status,
    progress_on_disk,
    status_lines,
)
from fedquilt.runs.run_folder import History

SITES = ("site-0", "site-1", "site-2")


def _record(number: int, ended: float, **missing: str) -> dict[str, Any]:
    return {
        "round": number,
        "loss": 0.5,
        "cohort": [name for name in SITES if name.replace("-", "_") not in missing],
        "seconds": 2.0,
        "metrics": {"macro_auc": 0.75, "map": None},
        "bytes_down": 100,
        "bytes_up": 50,
        "missing": {name.replace("_", "-"): why for name, why in missing.items()},
        "ended": ended,
    }


def test_a_site_is_missing_since_the_first_round_without_it() -> None:
    status = Status()
    status.begin(make_study(make_method("fedavg")), ["site-0", "site-1", "site-2"])
    status.note(_record(1, 10.0))
    status.note(_record(2, 20.0, site_1="no answer in time"))
    status.note(_record(3, 30.0, site_1="lost connection"))
    facts = status.to_dict()
    assert facts["missing_since"] == {"site-1": 20.0}
    assert facts["missing"] == {"site-1": "lost connection"}
    assert (facts["round"], facts["bytes_down"], facts["bytes_up"]) == (3, 300, 150)
    status.note(_record(4, 40.0))
    assert status.to_dict()["missing_since"] == {}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The run folder of a study whose site-1 is missing since its second round."""
    history = History(tmp_path / "history.jsonl")
    history.append(_record(1, 10.0))
    history.append(_record(2, 20.0, site_1="no answer in time"))
    history.append(_record(3, 30.0, site_1="lost connection"))
    return tmp_path


# The next job has been submitted and is silent, or answers before its rounds have begun.
@pytest.mark.parametrize("job_status", [None, Status().to_dict()], ids=["silent", "not begun"])
def test_between_two_jobs_the_status_is_read_from_disk(
    run: Path, job_status: dict[str, Any] | None
) -> None:
    on_disk = progress_on_disk(make_study(make_method("fedavg"), rounds=9), run)
    facts = current_status(on_disk, job_status, "a job is starting", SITES)
    assert (facts["round"], facts["bytes_down"], facts["bytes_up"]) == (3, 300, 150)
    assert facts["missing_since"] == {"site-1": 20.0}
    said = "\n".join(status_lines(facts))
    assert "study tiny: a job is starting, round 3 of 9" in said
    assert "in the last round: site-0, site-2" in said
    assert "connected: site-0, site-1, site-2" in said
    assert "(lost connection; connected again)" in said
    assert "training loss 0.5000" in said
    assert "300 bytes to the sites, 150 bytes from them" in said


def test_a_resumed_job_counts_the_rounds_before_it(run: Path) -> None:
    study = make_study(make_method("fedavg"), rounds=9)
    status = Status()
    status.begin(study, ["site-0", "site-2"], History(run / "history.jsonl").read())
    job_status = status.to_dict()
    assert (job_status["round"], job_status["began_after"], job_status["bytes_down"]) == (3, 3, 300)
    assert job_status["missing_since"] == {"site-1": 20.0}  # and not since the job began
    status.note({"notice": "resumed after round 2", "round": 2})  # no checkpoint of the third
    assert (status.to_dict()["round"], status.to_dict()["began_after"]) == (2, 2)
    status.note(_record(3, 50.0))
    facts = current_status(progress_on_disk(study, run), status.to_dict(), "unused", SITES)
    assert (facts["outcome"], facts["missing_since"]) == (None, {})
    assert "study tiny: running, round 3 of 9" in status_lines(facts)


def test_a_site_that_is_in_the_new_job_is_no_longer_missing(run: Path) -> None:
    status = Status()
    records = History(run / "history.jsonl").read()
    status.begin(make_study(make_method("fedavg"), rounds=9), SITES, records)
    assert status.to_dict()["missing_since"] == {}


def test_a_study_that_has_not_begun_and_one_that_is_done(tmp_path: Path, run: Path) -> None:
    study = make_study(make_method("fedavg"))
    new = current_status(progress_on_disk(study, tmp_path / "none"), None, "not submitted", [])
    assert status_lines(new) == [
        "study tiny: not submitted, round 0 of 3",
        "connected: none",
        "in all rounds so far: 0 bytes to the sites, 0 bytes from them",
    ]
    (run / "result.json").write_text("{}")
    done = current_status(progress_on_disk(study, run), None, "no job at the moment", [])
    assert status_lines(done)[0] == "study tiny: done, round 3 of 3"


def test_lines_for_a_terminal() -> None:
    status = Status()
    study = make_study(make_method("fedavg"))
    status.begin(study, ["site-0"])
    status.note({"notice": "resumed after round 1", "round": 1})
    status.note(_record(2, 20.0, site_1="no answer in time"))
    status.end(Outcome.TOO_FEW, "round 3: too few")
    said = "\n".join(status_lines(status.to_dict() | {"connected": ["site-0"]}))
    assert "study tiny: too few sites, round 2 of 3" in said
    assert "because: round 3: too few" in said
    assert "sites in the job: site-0" in said
    assert "missing: site-1 since " in said
    assert "(no answer in time)" in said
    assert "metrics: macro_auc 0.7500" in said
    assert "100 bytes to the sites, 50 bytes from them" in said
    status.end(Outcome.CUT, None)
    assert "a new job begins" in status_lines(status.to_dict() | {"connected": []})[0]
