"""Optuna's search: one budget for all machines, trials that go on, and machines that are gone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from fedquilt.core.errors import UserError
from fedquilt.runs.sweep.plan import Choice, Span, Sweep, SweepPlan
from fedquilt.runs.sweep.search import Outcome, Trial

pytest.importorskip("optuna", reason="needs the extra optuna")

from fedquilt.runs.sweep import optuna_search
from fedquilt.runs.sweep.optuna_search import OptunaSearch, open_storage

CHOICES: dict[str, Choice] = {
    "method.training.lr": Span(low=1e-4, high=1e-1, log=True),
    "cohort_size": Span(low=1, high=3),
    "method.head_rows": ("all", "annotators"),
}


def search_at(place: str, folder: Path, **sweep: Any) -> OptunaSearch:
    given = {"methods": ("fedavg",), "search": "optuna", "trials": 5, "settings": CHOICES}
    plan = SweepPlan("study", {}, Sweep(**given | sweep))
    return OptunaSearch(plan, "fedavg", open_storage(str(folder / "trials.journal")), place)


def score(trial: Trial) -> float:
    rate = trial.settings["method.training.lr"]
    assert isinstance(rate, float)
    return -abs(rate - 0.01)


def all_asked(search: OptunaSearch) -> list[Trial]:
    asked = []
    while (trial := search.ask()) is not None:
        asked.append(trial)
        search.tell(Outcome(trial, score(trial)))
    return asked


def test_draws_lie_in_the_ranges_and_follow_the_seed(tmp_path: Path):
    first, second = (tmp_path / name for name in ("one", "two"))
    first.mkdir()
    second.mkdir()
    trials = all_asked(search_at("here", first))
    assert [trial.number for trial in trials] == [0, 1, 2, 3, 4]
    for trial in trials:
        assert -0.09 <= score(trial) <= 0  # a rate from 1e-4 to 1e-1
        assert trial.settings["cohort_size"] in (1, 2, 3)
        assert trial.settings["method.head_rows"] in ("all", "annotators")
    assert all_asked(search_at("here", second)) == trials


def test_two_machines_share_one_budget(tmp_path: Path):
    one, two = search_at("one", tmp_path), search_at("two", tmp_path)
    asked = [search.ask() for _ in range(4) for search in (one, two)]
    trials = [trial for trial in asked if trial is not None]
    assert [trial.number for trial in trials] == [0, 1, 2, 3, 4]
    assert one.running_elsewhere() == 2
    assert two.running_elsewhere() == 3
    for number, trial in enumerate(trials):
        (one, two)[number % 2].tell(Outcome(trial, float(number)))
    assert [each.score for each in one.outcomes()] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert one.outcomes() == two.outcomes()


def test_machines_that_ask_at_once_stay_within_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    one = search_at("one", tmp_path, trials=1)
    two = search_at("two", tmp_path, trials=1)
    assert one.ask() is not None
    with monkeypatch.context() as patch:  # the second has looked before the first asked
        patch.setattr(two._study, "get_trials", list)
        assert two.ask() is None
    assert one.running_elsewhere() == 0
    assert one.outcomes() == []


def test_a_killed_trial_goes_on_at_its_own_machine(tmp_path: Path):
    begun = search_at("one", tmp_path).ask()
    assert search_at("two", tmp_path).ask() != begun
    again = search_at("one", tmp_path)
    assert again.ask() == begun
    assert begun is not None
    again.tell(Outcome(begun, 0.5))
    assert again.outcomes() == [Outcome(begun, 0.5)]


def test_a_lost_machine_gives_its_budget_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    gone = search_at("gone", tmp_path, trials=2)
    assert gone.ask() is not None
    here = search_at("here", tmp_path, trials=2)
    assert len(all_asked(here)) == 1
    assert here.running_elsewhere() == 1
    monkeypatch.setattr(optuna_search, "LOST_SECONDS", 0.0)
    assert here.running_elsewhere() == 0
    assert [trial.number for trial in all_asked(here)] == [2]
    assert [each.trial.number for each in here.outcomes()] == [1, 2]


def test_a_sign_of_life_is_given_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    one, two = search_at("one", tmp_path), search_at("two", tmp_path)
    assert one.ask() is not None
    one._mark(0, optuna_search.BEAT, 0.0)  # long ago
    one.keep_alive()
    assert two.running_elsewhere() == 1


def test_a_failed_trial_keeps_its_reason_and_its_place(tmp_path: Path):
    search = search_at("here", tmp_path, trials=1)
    trial = search.ask()
    assert trial is not None
    search.tell(Outcome(trial, None, "diverged"))
    assert search.outcomes() == [Outcome(trial, None, "diverged")]
    assert search.ask() is None


def test_the_first_machine_to_end_compares(tmp_path: Path):
    one, two = search_at("one", tmp_path), search_at("two", tmp_path)
    assert [one.claims_comparison(), two.claims_comparison(), one.claims_comparison()] == [
        True,
        False,
        True,
    ]


def test_a_storage_that_cannot_be_opened_is_named():
    with pytest.raises(UserError, match="the storage nothing://here cannot be opened"):
        open_storage("nothing://here")


def test_without_optuna_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UserError, match=r"pip install 'fedquilt\[optuna\]'"):
        open_storage("file")
