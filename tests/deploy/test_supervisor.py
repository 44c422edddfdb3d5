"""When the coordinator starts a new job, with scripted answers of FLARE."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nvflare.fuel.flare_api.api_spec import NoConnection, NoReply
from support.remote_sites import make_study
from support.tiny_federation import make_method

from fedquilt.core.errors import UserError
from fedquilt.deploy.kit import Kit
from fedquilt.deploy.nvflare.session import Session
from fedquilt.deploy.nvflare.supervisor import Supervisor
from fedquilt.deploy.server.status import Outcome

JOB = "the-job"


@pytest.mark.parametrize(
    ("answer", "could_join"),
    [
        ([{"client_name": "site-1", "status": "no_jobs"}], True),
        ([{"client_name": "site-1", "job_id": "an-older-job", "status": "stopping"}], True),
        ([{"client_name": "site-1", "job_id": JOB, "status": "started"}], False),
        ([{"client_name": "site-1", "status": "no_reply"}], False),  # killed a moment ago
        ([{"client_name": "site-1", "status": "error"}], False),
        (None, False),
    ],
    ids=["idle", "in another job", "in the job", "silent", "in trouble", "nobody answers"],
)
def test_only_a_site_that_answers_could_join(
    answer: list[dict[str, str]] | None, could_join: bool, tmp_path: Path
) -> None:
    with Session(Kit(tmp_path), make_study(make_method("fedavg"))) as session:
        session._connection = SimpleNamespace(  # type: ignore[assignment]
            get_client_job_status=lambda names: answer, close=lambda: None
        )
        assert session.could_join("site-1", JOB) is could_join


@pytest.mark.parametrize("error", [NoReply, NoConnection])
def test_a_site_that_cannot_be_asked_could_not_join(error: type[Exception], tmp_path: Path) -> None:
    """A busy server may take longer to ask a dead site than we wait for the server."""

    def silent(names: list[str]) -> None:
        raise error("nothing")

    with Session(Kit(tmp_path), make_study(make_method("fedavg"))) as session:
        session._connection = SimpleNamespace(  # type: ignore[assignment]
            get_client_job_status=silent, close=lambda: None
        )
        assert session.could_join("site-1", JOB) is False


class ScriptedSession:
    """Jobs report one status after the other; all sites are connected and idle."""

    def __init__(self, *jobs: list[dict[str, Any]], begun: bool = False) -> None:
        self._jobs, self._begun = list(jobs), begun
        self.paused: list[str] = []
        self.wanted: list[str] = []

    def connect(self, seconds: float) -> None:
        pass

    def progress(self) -> dict[str, Any]:
        decided = {"paused": self.paused.pop() if self.paused else None, "departed": {}}
        return {"is_begun": self._begun, "round": 2, "rounds": 3, **decided}

    def connected_sites(self) -> set[str]:
        return {"site-0", "site-1", "site-2"}

    def jobs(self) -> list[dict[str, Any]]:
        return []

    def submit(self, job: Path) -> str:
        self.statuses = self._jobs.pop(0)
        return f"job-{len(self._jobs)}"

    def command(self, job: str, want: str) -> dict[str, Any] | None:
        self.wanted.append(want)
        return self.statuses.pop(0) if want == "status" else None

    def could_join(self, site: str, job: str) -> bool:
        return True

    def has_ended(self, job: str) -> bool:
        return True


def _status(number: int, outcome: Outcome | None, missing: tuple[str, ...] = ()) -> dict[str, Any]:
    last = {
        "loss": 0.5,
        "cohort": ["site-0"],
        "seconds": 1.0,
        "missing": dict.fromkeys(missing, ""),
    }
    return {
        "round": number,
        "rounds": 3,
        "last": last,
        "recent": [{**last, "round": each + 1} for each in range(number)],
        "missing_since": dict.fromkeys(missing, 0.0),
        "outcome": None if outcome is None else outcome.value,
        "began_after": 0 if number < 2 else 1,
    }


def test_a_returning_site_gets_a_new_job_and_no_round_is_reported_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedquilt.deploy.nvflare.supervisor.POLL_SECONDS", 0.0)
    session = ScriptedSession(
        [_status(1, None, missing=("site-1",)), _status(1, Outcome.CUT, missing=("site-1",))],
        [_status(2, None), _status(3, None), _status(3, Outcome.DONE)],
    )
    lines: list[str] = []
    study = make_study(make_method("fedavg"))
    assert Supervisor(study, session, lines.append).run(resume=False) == "job-0"  # type: ignore[arg-type]
    assert session.wanted.count("cut") == 1
    rounds = [line.partition(":")[0] for line in lines if line.startswith("round")]
    assert rounds == ["round 1 of 3", "round 2 of 3", "round 3 of 3"]
    assert "site-1 is back: a new job begins after this round" in lines


def test_rounds_that_end_between_two_requests_are_reported_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedquilt.deploy.nvflare.supervisor.POLL_SECONDS", 0.0)
    session = ScriptedSession([_status(1, None), _status(3, Outcome.DONE)])
    lines: list[str] = []
    study = make_study(make_method("fedavg"))
    Supervisor(study, session, lines.append).run(resume=False)  # type: ignore[arg-type]
    rounds = [line.partition(":")[0] for line in lines if line.startswith("round")]
    assert rounds == ["round 1 of 3", "round 2 of 3", "round 3 of 3"]


def test_a_notice_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedquilt.deploy.nvflare.supervisor.POLL_SECONDS", 0.0)
    first = _status(1, None) | {"notices": ["site-2 missed the survey"]}
    session = ScriptedSession([first, first, first | _status(3, Outcome.DONE)])
    lines: list[str] = []
    Supervisor(make_study(make_method("fedaws")), session, lines.append).run(resume=False)  # type: ignore[arg-type]
    assert lines.count("notice: site-2 missed the survey") == 1


def test_an_existing_run_is_not_overwritten() -> None:
    session = ScriptedSession(begun=True)
    supervisor = Supervisor(make_study(make_method("fedavg")), session, print)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="already holds a run of tiny, 2 of 3 rounds; resume it"):
        supervisor.run(resume=False)


def test_a_paused_study_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POLL_SECONDS", "PAUSED_POLL_SECONDS"):
        monkeypatch.setattr(f"fedquilt.deploy.nvflare.supervisor.{name}", 0.0)
    session = ScriptedSession(
        [_status(1, None), _status(1, Outcome.PAUSED)], [_status(3, Outcome.DONE)]
    )
    session.paused = ["lunch", "lunch"]
    lines: list[str] = []
    Supervisor(make_study(make_method("fedavg")), session, lines.append).run(resume=True)  # type: ignore[arg-type]
    assert session.paused == []
    assert lines.count("paused: lunch; waiting for `fedquilt deploy resume`") == 1


def test_rounds_after_going_back_are_reported_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedquilt.deploy.nvflare.supervisor.POLL_SECONDS", 0.0)
    back = {"rollbacks": 1, "began_after": 1}
    session = ScriptedSession(
        [_status(1, None), _status(2, None), _status(2, Outcome.CUT)],
        [_status(1, None) | back, _status(2, None) | back, _status(3, Outcome.DONE) | back],
    )
    lines: list[str] = []
    Supervisor(make_study(make_method("fedavg")), session, lines.append).run(resume=False)  # type: ignore[arg-type]
    rounds = [line.partition(" of")[0] for line in lines if line.startswith("round")]
    assert rounds == ["round 1", "round 2", "round 2", "round 3"]
