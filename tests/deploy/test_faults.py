"""Kill sites, servers and training processes while a study runs."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import psutil
import pytest
from digits_recipe import recipe_settings
from one_process import largest_difference
from running_study import RunningStudy

ROUNDS = 14
SLOW = {"steps": 24, "lr": 1e-3}  # long enough to kill a process during a round
# A round without a site takes at least four seconds: time to return before the last round.
RULES = {"late_seconds": 4.0, "lost_seconds": 30.0}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStudy]:
    settings = recipe_settings("scaffold", rounds=ROUNDS, **SLOW)
    with RunningStudy(tmp_path_factory.mktemp("study"), settings, RULES) as study:
        yield study


@pytest.fixture
def study(up: RunningStudy) -> RunningStudy:
    up.reset()
    return up


def test_a_killed_site_is_left_out_and_returns_with_its_state(study: RunningStudy) -> None:
    submitted = study.submit()
    study.wait_for_round(2)
    study.wait_for_training("client-1")
    study.kill("client-1")
    study.wait_until(lambda: _counted(study, "client-1", False), 90, "round without it")
    _check_status(study)
    study.start_site("client-1")
    restarted = time.monotonic()
    first = len(study.history())
    study.wait_until(lambda: _counted(study, "client-1", True), 180, "round with it again")
    again = next(r for r in study.history()[first:] if "client-1" in r["cohort"])
    seconds = time.monotonic() - restarted
    print(f"back after {seconds:.1f} s, {again['round'] - first} rounds")
    assert seconds < 60 or again["round"] - first <= 3, (seconds, again["round"], first)
    assert submitted.wait(300) == 0, study.said("submit")
    assert study.said("submit").count("client-1 is back") == 1
    assert study.said("submit").count("submitted") == 2  # the job it was killed in, and the next
    _check_end(study)  # its control variate was read from its disk


def _counted(study: RunningStudy, site: str, wanted: bool) -> bool:
    history = study.history()
    return bool(history) and (site in history[-1]["cohort"]) == wanted


def _check_status(study: RunningStudy) -> None:
    """The status names the missing site and since when, also between two jobs."""
    before = len(study.history())
    said = study.status()
    (found,) = re.findall(rf"study digits: .+, round (\d+) of {ROUNDS}", said)
    assert before <= int(found) <= len(study.history())
    assert re.search("in the last round: (client-[02](, )?){2}\n", said), said
    assert "missing: client-1 since 20" in said
    assert "metrics: " in said
    assert "bytes to the sites" in said


def _check_end(study: RunningStudy) -> None:
    assert [record["round"] for record in study.history()] == list(range(1, ROUNDS + 1))
    assert largest_difference(study) <= 1e-6


def test_a_killed_server_resumes_from_its_last_round(study: RunningStudy) -> None:
    study.submit(server_seconds=8.0)
    study.wait_for_round(3)
    study.wait_for_training("client-0")
    study.kill("server")
    assert study.processes["submit"].wait(120) == 1, "it must not wait for ever"
    assert "could not be reached" in study.said("submit")
    done = len(study.history())
    assert 3 <= done < ROUNDS
    study.start_server()
    assert study.submit().wait(200) == 1  # without --resume nothing is overwritten
    assert "already holds a run" in study.said("submit")
    said = study.status()  # read from the server's disk: there is no job
    assert f"round {done} of {ROUNDS}" in said
    assert "in the last round: " in said
    assert study.submit("--resume").wait(300) == 0, study.said("submit")
    assert all(len(record["cohort"]) == 3 for record in study.history())
    _check_end(study)


def test_a_dead_training_process_costs_one_update_and_no_job(study: RunningStudy) -> None:
    study.submit()
    study.wait_for_round(2)
    trainer = _trainer_of(study, "client-2")
    study.wait_for_training("client-2")
    trainer.kill()
    study.wait_until(lambda: _counted(study, "client-2", False), 60, "round without it")
    study.wait_until(lambda: _counted(study, "client-2", True), 60, "round with it again")
    reasons = [record["missing"]["client-2"] for record in study.history() if record["missing"]]
    assert len(reasons) <= 2
    assert any("TrainingProcessDied" in reason for reason in reasons), reasons
    assert study.said("submit").count("submitted") == 1  # still the first job


def _trainer_of(study: RunningStudy, site: str) -> psutil.Process:
    (found,) = (
        each
        for each in psutil.Process(study.processes[site].pid).children(recursive=True)
        if "fedquilt.deploy.site.trainer" in each.cmdline()
    )
    return found
