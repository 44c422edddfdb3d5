"""Sites and server that are killed, sites that raise, and waits that end."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
from running_study import RunningStudy, recipe_settings, wait_until

SLOW = {"steps": 80, "lr": 1e-3}  # so that a kill falls into the training of a round


def test_a_killed_site_is_left_out_and_comes_back_with_its_state(tmp_path: Path) -> None:
    settings = recipe_settings("scaffold", rounds=30, **SLOW)
    with RunningStudy(tmp_path, settings, {"lost_seconds": 10.0, "late_seconds": 4.0}) as study:
        study.start_all()
        submitted = study.submit()
        study.wait_for_round(3)
        study.kill("client-1")
        wait_until(lambda: _counted(study, "client-1", False), 60, "round without it", study)
        _check_status(study)
        study.start_site("client-1")
        restarted = time.monotonic()
        first = len(study.history())
        wait_until(lambda: _counted(study, "client-1", True), 100, "round with it again", study)
        again = next(r for r in study.history()[first:] if "client-1" in r["cohort"])
        seconds = time.monotonic() - restarted
        assert seconds < 60 or again["round"] - first <= 3, (seconds, again["round"], first)
        print(f"back after {seconds:.1f} s, {again['round'] - first} rounds")
        assert submitted.wait(300) == 0, study.said("submit")
        assert "client-1 is back" in study.said("submit")
        assert len(study.history()) == 30
        assert study.largest_difference() <= 1e-6  # its control variate came back from its disk


def _check_status(study: RunningStudy) -> None:
    """Whoever looks is told who is missing and since when."""
    kit = str(study.kits["coordinator"])
    looked = study.start("status", "deploy", "status", str(study.study_file), "--kit", kit)
    assert looked.wait(90) == 0, study.said("status")
    said = study.said("status")
    assert "running, round" in said
    assert "missing: client-1 since 20" in said
    assert "metrics: " in said
    assert "bytes to the sites" in said


def _counted(study: RunningStudy, site: str, wanted: bool) -> bool:
    history = study.history()
    return bool(history) and (site in history[-1]["cohort"]) == wanted


def test_a_killed_server_goes_on_from_its_last_round(tmp_path: Path) -> None:
    settings = recipe_settings("scaffold", rounds=10, **SLOW)
    with RunningStudy(tmp_path, settings, {"server_seconds": 20.0}) as study:
        study.start_all()
        study.submit()
        study.wait_for_round(3)
        study.kill("server")
        assert study.processes["submit"].wait(120) == 1, "it must not wait for ever"
        assert "could not be reached" in study.said("submit")
        done = len(study.history())
        assert 3 <= done < 10
        study.start_server()
        assert study.submit().wait(200) == 1  # without --resume nothing is overwritten
        assert "already holds a run" in study.said("submit")
        assert study.submit("--resume").wait(300) == 0, study.said("submit")
        assert [record["round"] for record in study.history()] == list(range(1, 11))
        assert study.largest_difference() <= 1e-6


def test_a_dead_training_process_costs_one_update_and_no_job(tmp_path: Path) -> None:
    settings = recipe_settings("fedavg", rounds=12, **SLOW)
    with RunningStudy(tmp_path, settings) as study:
        study.start_all()
        submitted = study.submit()
        study.wait_for_round(2)
        _trainer_of(study, "client-2").kill()
        assert submitted.wait(300) == 0, study.said("submit")
        cohorts = [len(record["cohort"]) for record in study.history()]
        reasons = [record["missing"].get("client-2", "") for record in study.history()]
        assert cohorts.count(2) <= 2
        assert any("TrainingProcessDied" in reason for reason in reasons), reasons
        assert cohorts[-1] == 3
        assert study.said("submit").count("submitted") == 1  # one job all along


def _trainer_of(study: RunningStudy, site: str) -> psutil.Process:
    (found,) = (
        each
        for each in psutil.Process(study.processes[site].pid).children(recursive=True)
        if "fedquilt.deploy.trainer" in each.cmdline()
    )
    return found


def test_a_site_that_raises_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    with RunningStudy(tmp_path, recipe_settings("fedavg")) as study:
        labels = tmp_path / "sites" / "client-0" / "labels.csv"
        labels.write_text(labels.read_text() + "patient-Meier.png,train,1,1\n")
        study.start_all()
        assert study.submit().wait(300) == 0, study.said("submit")
        for record in study.history():
            assert sorted(record["cohort"]) == ["client-1", "client-2"]
            assert record["missing"]["client-0"].startswith("UserError")
        own_log = tmp_path / "sites" / "client-0" / "fedquilt-site" / "site.log"
        assert "remove the rows" in own_log.read_text()
        for path in study.kits["server"].rglob("*"):  # its error text never left the site
            content = path.read_bytes() if path.is_file() else b""
            assert b"remove the rows" not in content, path
            assert b"Meier" not in content, path


def test_too_few_sites_end_the_wait_and_are_named(tmp_path: Path) -> None:
    with RunningStudy(tmp_path, recipe_settings("fedavg"), {"start_seconds": 25.0}) as study:
        study.start_server()
        study.start_site("client-1")
        began = time.monotonic()
        assert study.submit().wait(150) == 1
        assert time.monotonic() - began < 120
        said = study.said("submit")
        assert "missing: client-0 (not connected), client-2 (not connected)" in said
