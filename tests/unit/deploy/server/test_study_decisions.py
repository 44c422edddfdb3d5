"""What a coordinator decides about a running study, and a site that leaves it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.remote_sites import CallingChannel, make_clients, make_sites, make_study
from support.secure_study import secure_study
from support.tiny_federation import make_method

from fedquilt.core.errors import UserError
from fedquilt.core.tree import same_bits
from fedquilt.deploy.audit_chain import read_events, verify_chain
from fedquilt.deploy.server.decisions import Decisions, decide
from fedquilt.deploy.server.run import ServerRun
from fedquilt.deploy.server.status import progress_on_disk, status_lines
from fedquilt.deploy.site.leaving import leave_study
from fedquilt.deploy.site.settings import SiteFiles, SiteSettings
from fedquilt.deploy.site.states import study_folder
from fedquilt.deploy.study import Study
from fedquilt.runs.finished_run import read_run
from fedquilt.runs.trained_models import load_weights

ROUNDS = 4


class Running:
    """A study of three sites in this process, whose jobs are run one by one."""

    def __init__(self, tmp_path: Path, method: str = "scaffold", **rules: object) -> None:
        self.folder = tmp_path
        self.study: Study = make_study(make_method(method), rounds=ROUNDS, **rules)
        self.channel = CallingChannel(make_sites(self.study, tmp_path / "sites", rounds=ROUNDS))
        self.after: Callable[[int], None] = lambda number: None

    def run(self, *, resume: bool) -> bool:
        return self.job().run(resume=resume)

    def job(self) -> ServerRun:
        return ServerRun(self.study, self.folder / "run", self.channel, observe=self._observe)

    def _observe(self, record: dict[str, Any]) -> None:
        if "notice" not in record:
            self.after(record["round"])

    def decide_after(self, number: int, kind: str, **facts: Any) -> None:
        def after(done: int) -> None:
            if done == number:
                self.decide(kind, **facts)
                self.after = lambda number: None

        self.after = after

    def decide(self, kind: str, reason: str = "a reason", **facts: Any) -> None:
        asked = {"kind": kind, "reason": reason, **facts}
        decide(self.study, self.job().folder, asked, "coordinator")

    def history(self) -> list[dict[str, Any]]:
        return self.job().folder.history.read()

    def weights(self) -> Any:
        run = read_run(self.folder / "run")
        return load_weights(run.folder, run.models.card, "global")

    def result(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "run" / "result.json").read_text())
        return found

    def events(self, event: str) -> list[dict[str, Any]]:
        events, _ = read_events(self.folder / "run" / "audit.jsonl")
        return [each for each in events if each["event"] == event]


def expected_weights(method: str) -> Any:
    chosen = make_method(method)
    return make_clients(chosen, ROUNDS).train(chosen)["weights"]


def test_a_paused_study_rests_after_its_round_and_ends_with_the_same_bits(tmp_path: Path) -> None:
    running = Running(tmp_path)
    running.decide_after(2, "pause", reason="the scanner is serviced")
    assert not running.run(resume=False)
    assert len(running.history()) == 2
    assert not running.run(resume=True)  # still paused: nothing is trained
    assert len(running.history()) == 2
    facts = progress_on_disk(running.study, tmp_path / "run")
    assert facts["paused"] == "the scanner is serviced"
    lines = status_lines({**facts, "connected": []})
    assert "paused: the scanner is serviced; go on with `fedquilt deploy resume`" in lines
    running.decide("resume", "it is back")
    assert running.run(resume=True)
    assert same_bits(running.weights(), expected_weights("scaffold"))
    told = [(each["kind"], each["reason"], each["by"]) for each in running.events("decided")]
    assert told == [
        ("pause", "the scanner is serviced", "coordinator"),
        ("resume", "it is back", "coordinator"),
    ]
    assert verify_chain(tmp_path / "run" / "audit.jsonl").damage is None


def test_a_stopped_study_ends_with_the_model_of_its_round(tmp_path: Path) -> None:
    running = Running(tmp_path)
    running.decide_after(2, "stop", reason="the funding has ended")
    assert running.run(resume=False)
    assert running.result()["rounds"] == 2
    assert running.result()["stopped"] == "the funding has ended"
    assert not same_bits(running.weights(), expected_weights("scaffold"))
    with pytest.raises(UserError, match="is done"):
        running.decide("pause")


@pytest.mark.parametrize("name", ["scaffold", "fedmlp"])
def test_going_back_repeats_the_rounds_with_the_same_bits(tmp_path: Path, name: str) -> None:
    running = Running(tmp_path, name)
    running.decide_after(3, "rollback", to_round=1, reason="a site had exchanged two labels")
    assert not running.run(resume=False)
    assert running.run(resume=True)
    assert [record["round"] for record in running.history()] == [1, 2, 3, 4]
    assert same_bits(running.weights(), expected_weights(name))
    site_log, _ = read_events(tmp_path / "sites" / "site-0" / "audit.jsonl")
    (told,) = [each for each in site_log if each["event"] == "went back"]
    assert (told["to_round"], told["reason"]) == (1, "a site had exchanged two labels")


def test_a_study_that_is_done_can_go_back(tmp_path: Path) -> None:
    running = Running(tmp_path)
    assert running.run(resume=False)
    running.decide("rollback", to_round=2)
    assert running.run(resume=True)
    assert running.run(resume=True)  # it does not go back twice
    assert len(running.events("sent")) == 3 * (1 + ROUNDS + 1 + 2 + 1 + 1)
    assert same_bits(running.weights(), expected_weights("scaffold"))


def test_only_saved_rounds_can_be_gone_back_to(tmp_path: Path) -> None:
    running = Running(tmp_path)
    running.decide_after(2, "pause")
    running.run(resume=False)
    for number in (2, 3, -1, "1", True):
        with pytest.raises(UserError, match=r"it is after round 2, and .* saved: 0, 1 "):
            running.decide("rollback", to_round=number)


def test_an_excluded_site_is_not_asked_and_its_contribution_ends(tmp_path: Path) -> None:
    running = Running(tmp_path)
    running.decide_after(2, "exclude", site="site-1", reason="its key was stolen")
    assert not running.run(resume=False)  # the job ends, for one without the site
    assert running.run(resume=True)
    assert [record["cohort"] for record in running.history()] == [
        *[["site-0", "site-1", "site-2"]] * 2,
        *[["site-0", "site-2"]] * 2,
    ]
    asked = [each for each in running.events("sent") if each["site"] == "site-1"]
    assert [each["round"] for each in asked] == [0, 0, 1]  # the survey and two rounds
    assert running.result()["contributions"]["site-1"] == {
        "rounds": 2,
        "first": 1,
        "last": 2,
        "ended": "excluded: its key was stolen",
    }
    assert Decisions(tmp_path / "run").excluded() == ["site-1"]
    with pytest.raises(UserError, match="site-1 takes no part any more"):
        running.decide("exclude", site="site-1")


def test_the_update_of_a_site_excluded_while_it_trains_is_refused(tmp_path: Path) -> None:
    """The round goes on as if the site had been killed."""
    running = Running(tmp_path)
    ask, log = running.channel._alter, running.events

    def alter(site: str, reply: bytes) -> list[bytes]:
        last = log("sent")[-1]
        if site == "site-1" and (last["kind"], last["round"]) == ("train", 1):
            running.decide("exclude", site="site-1", reason="stolen")
        return ask(site, reply)

    running.channel._alter = alter
    assert not running.run(resume=False)
    assert running.history()[1]["missing"] == {"site-1": "excluded: stolen"}
    (refused,) = running.events("refused")
    assert (refused["site"], refused["reason"]) == ("site-1", "excluded: stolen")
    assert running.run(resume=True)


def test_too_many_excluded_sites_stop_the_study_with_the_reason(tmp_path: Path) -> None:
    running = Running(tmp_path, quorum=2)
    running.decide_after(1, "exclude", site="site-1")
    assert not running.run(resume=False)
    running.decide("exclude", site="site-2")
    with pytest.raises(UserError, match=r"1 of 3 sites are left \(site-0\), and .* quorum is 2"):
        running.run(resume=True)
    running.decide("stop")
    assert running.run(resume=True)  # a stopped study needs no quorum


def test_a_site_that_leaves_tells_the_server_and_is_asked_no_more(tmp_path: Path) -> None:
    running = Running(tmp_path)
    work = tmp_path / "work"
    settings = SiteSettings(data=SiteFiles(folder="", labels=""), work_folder=str(work))
    kept = study_folder(work, running.study, "site-2")
    site = running.channel._sites["site-2"]
    site._check = replace(site._check, folder=kept)

    def leave(number: int) -> None:
        if number == 2:
            leave_study(running.study, "site-2", settings, "its ethics vote has ended")

    running.after = leave
    assert not running.run(resume=False)
    assert running.run(resume=True)
    third = running.history()[2]
    assert third["missing"] == {"site-2": "SiteHasLeft: its ethics vote has ended"}
    assert "site-2" not in running.history()[3]["missing"]
    ended = running.result()["contributions"]["site-2"]
    assert (ended["last"], ended["ended"]) == (2, "left: its ethics vote has ended")
    (left,) = running.events("decided")
    assert (left["kind"], left["by"], left["site"]) == ("left", "site-2", "site-2")
    events, _ = read_events(work / "audit.jsonl")
    assert [each["event"] for each in events] == ["left"]
    with pytest.raises(UserError, match="has left tiny already"):
        leave_study(running.study, "site-2", settings, "again")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"kind": "shut down", "reason": "x"}, "not a decision that a coordinator can make"),
        ({"kind": ["pause"], "reason": "x"}, "not a decision that a coordinator can make"),
        ({"kind": "left", "reason": "x", "site": "site-0"}, "not a decision that a coordinator"),
        ({"kind": "pause", "reason": "  "}, "needs a reason"),
        ({"kind": "pause"}, "needs a reason"),
        ({"kind": "pause", "reason": "x" * 301}, "at most 300 characters"),
        ({"kind": "resume", "reason": "x"}, "is not paused"),
        ({"kind": "exclude", "reason": "x", "site": "site-9"}, "has no site 'site-9'"),
        ({"kind": "rollback", "reason": "x", "to_round": 0}, "saved: none"),
    ],
)
def test_odd_decisions_are_refused_and_not_recorded(
    tmp_path: Path, asked: dict[str, Any], message: str
) -> None:
    running = Running(tmp_path)
    with pytest.raises(UserError, match=message):
        decide(running.study, running.job().folder, asked, "coordinator")
    assert running.events("decided") == []


def test_a_secure_study_cannot_go_back(tmp_path: Path) -> None:
    study = secure_study(make_method("fedavg"))
    folder = ServerRun(study, tmp_path / "run", CallingChannel({})).folder
    with pytest.raises(UserError, match="unmask the sum of a round once"):
        decide(study, folder, {"kind": "rollback", "reason": "x", "to_round": 0}, "coordinator")
