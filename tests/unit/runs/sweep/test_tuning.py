"""Trials: scored on validation images alone, resumed, and failing one by one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.inline_pool import InlinePool
from support.tiny_runs import tiny_settings

from fedquilt.core.errors import UserError
from fedquilt.data.sources.digits_mosaic.load import DigitsMosaic
from fedquilt.runs.run_folder import RunFolder
from fedquilt.runs.sweep.plan import Sweep, SweepPlan
from fedquilt.runs.sweep.search import GridSearch, Outcome, Trial, grid_searches
from fedquilt.runs.sweep.tuning import best_of, check_has_validation, score_of_run, tune


def tiny_plan(**sweep: Any) -> SweepPlan:
    base = tiny_settings("fedavg-pl", validation={"share": 0.4})
    base["data"]["train"] = 60
    del base["method"]["name"]
    given = {"methods": ("fedavg-pl",), "settings": {"method.training.lr": (1e-3, 1e-1)}}
    return SweepPlan("tiny", base, Sweep(**given | sweep))


def tuned(plan: SweepPlan, out: Path) -> tuple[list[Outcome], list[Path]]:
    searches, _ = grid_searches(plan)
    reported: list[Outcome] = []
    pool = InlinePool(cache=out)
    tune(plan, searches, out, pool, reported.append)  # type: ignore[arg-type]
    outcomes = [each for search in searches.values() for each in search.outcomes()]
    assert sorted(reported, key=outcomes.index) == outcomes  # finished runs are reported first
    return outcomes, pool.submitted


def test_a_score_is_the_best_validated_round(tmp_path: Path):
    plan = tiny_plan(tuning_seeds=(1, 2))
    outcomes, submitted = tuned(plan, tmp_path)
    assert len(submitted) == 2 * 2
    for outcome in outcomes:
        best = []
        for seed in (1, 2):
            history = RunFolder(tmp_path / outcome.trial.folder / f"seed-{seed}").history.read()
            best.append(max(record["validation"]["site_auc"] for record in history))
        assert outcome.score == pytest.approx(sum(best) / 2)


def test_finished_runs_are_not_run_again(tmp_path: Path):
    first, _ = tuned(tiny_plan(), tmp_path)
    again, submitted = tuned(tiny_plan(), tmp_path)
    assert submitted == []
    assert again == first
    more, submitted = tuned(tiny_plan(settings={"method.training.lr": (1e-3, 1e-1, 1.0)}), tmp_path)
    assert [path.parent.name for path in submitted] == ["0002"]
    assert more[:2] == first


def test_another_study_in_the_same_folder_keeps_the_runs_of_the_first(tmp_path: Path):
    def rates(*values: float) -> SweepPlan:
        return tiny_plan(settings={"method.training.lr": values})

    first, _ = tuned(rates(1e-3, 1e-1), tmp_path)
    other, submitted = tuned(rates(1e-2, 1e-1), tmp_path)  # number 0 is another trial now
    assert [each.error for each in other] == [None, None]
    assert [str(path.relative_to(tmp_path)) for path in submitted] == ["fedavg-pl/0000/seed-100-2"]
    assert other[1] == first[1]
    assert tuned(rates(1e-2, 1e-1), tmp_path) == (other, [])
    assert tuned(rates(1e-3, 1e-1), tmp_path) == (first, [])


def test_test_labels_do_not_change_a_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first, _ = tuned(tiny_plan(), tmp_path / "one")
    load = DigitsMosaic.load

    def with_other_test(self: DigitsMosaic, cache: Path) -> Any:
        splits = load(self, cache)
        return replace(splits, test=replace(splits.test, labels=1 - splits.test.labels))

    monkeypatch.setattr(DigitsMosaic, "load", with_other_test)
    second, _ = tuned(tiny_plan(), tmp_path / "two")
    assert second == first
    metrics = [
        json.loads((tmp_path / name / "fedavg-pl/0001/seed-100/result.json").read_text())["metrics"]
        for name in ("one", "two")
    ]
    assert metrics[0]["macro_auc"] == pytest.approx(1 - metrics[1]["macro_auc"])


def test_a_loss_is_a_score_with_its_sign_turned(tmp_path: Path):
    plan = tiny_plan()
    plan = replace(plan, base={**plan.base, "validation": {"share": 0.4, "metric": "loss"}})
    outcomes, _ = tuned(plan, tmp_path)
    history = RunFolder(tmp_path / outcomes[0].trial.folder / "seed-100").history.read()
    assert outcomes[0].score == -min(record["validation"]["loss"] for record in history)


def test_a_failed_trial_is_left_out(tmp_path: Path):
    (tmp_path / "fedavg-pl").mkdir()
    (tmp_path / "fedavg-pl" / "0000").touch()  # in the way of the first trial's folder
    failed, good = tuned(tiny_plan(), tmp_path)[0]
    assert failed.score is None
    assert "0000" in str(failed.error)
    assert good.score is not None


def search_with(*scores: float | None) -> GridSearch:
    search = GridSearch("fedavg", [])
    for number, score in enumerate(scores):
        error = "diverged" if score is None else None
        search.tell(Outcome(Trial("fedavg", number, {}), score, error))
    return search


@pytest.mark.parametrize(
    ("scores", "best"), [((0.1, 0.3, 0.3), 1), ((None, -2.0, -1.0), 2), ((0.0,), 0)]
)
def test_the_best_is_the_first_of_the_largest(scores: tuple[float | None, ...], best: int):
    assert best_of("fedavg", search_with(*scores)).trial.number == best


def test_without_any_score_the_reason_is_said():
    with pytest.raises(UserError, match=r"fedavg: no trial has a score; the first .*: diverged"):
        best_of("fedavg", search_with(None, None))


def test_data_without_a_validation_part_are_refused(tmp_path: Path):
    plan = tiny_plan()
    check_has_validation(plan, tmp_path)
    without = replace(plan, base={**plan.base, "validation": {"share": 0.0}})
    with pytest.raises(UserError, match=r"scored on validation images only.*\[validation\] share"):
        check_has_validation(without, tmp_path)


def test_a_run_without_a_judged_round_has_no_score(tmp_path: Path):
    recipe = tiny_plan().recipe("fedavg-pl", {}, 0)
    tmp_path.joinpath("history.jsonl").write_text('{"round": 1}\n')
    with pytest.raises(UserError, match="no round could be judged"):
        score_of_run(RunFolder(tmp_path), recipe)
