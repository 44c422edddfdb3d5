"""The study of QUILT: which job is next, what a cut study keeps, and its tables, by hand."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support.markdown_pages import blocks

from benchmarks.studies.quilt.candidates import CANDIDATES as CANDIDATE_METHODS
from benchmarks.studies.quilt.candidates import barlow_twins, matched
from benchmarks.studies.quilt.data_sets import _drawn
from benchmarks.studies.quilt.kept_rows import finals, kept, read
from benchmarks.studies.quilt.one_run import GLOBAL, Job, _write
from benchmarks.studies.quilt.plan import BEST, DECIDING, IDEAS, MAIN, SCENES, THREE, Part
from benchmarks.studies.quilt.problems import PROBLEMS, ROWS, views_of
from benchmarks.studies.quilt.runs import CANDIDATES, Study
from benchmarks.studies.quilt.tables import differences, means, ranks
from fedquilt.methods import METHODS
from fedquilt.recipes.recipe import recipe_from

RATES = PROBLEMS[MAIN].rates
PLAN = (
    Part("tuning", MAIN, ("QUILT",), 40),
    Part("final", MAIN, ("QUILT",), seeds=(1,)),
    Part("screening", MAIN, tuple(CANDIDATES)),
    Part("final", MAIN, (BEST,), seeds=(1,)),
)


def _row(job: Job, auc: float, precision: float = 50.0, **facts: object) -> dict[str, object]:
    made = {"macro_auc": auc, "map": precision, "bacc": 60.0, "round": job.rounds}
    costs = {"bytes_up": 8, "seconds_in_rounds": 2.0, "memory_MiB": "", "hardware": "cpu"}
    classes = {"auc_per_class": "", "ap_per_class": ""}
    return {**vars(job), **made, "served": GLOBAL, **costs, **classes, **facts}


def _tuning(rate: float) -> Job:
    return Job(phase="tuning", problem=MAIN, row="QUILT", seed=100, rounds=40, rate=rate)


def _only_rate(problem: str, row: str) -> float:
    return 1e-3


def _finals(problem: str, row: str, rounds: int, rate: float = 1e-3) -> list[Job]:
    """Two seeds: a row with one was cut off."""
    facts = {"problem": problem, "row": row, "rounds": rounds, "rate": rate}
    return [Job(phase="final", seed=seed, **facts) for seed in (1, 2)]  # type: ignore[arg-type]


def _next(study: Study) -> Job | None:
    return next((job for job in study.jobs(PLAN) if job and job not in study.finished), None)


def test_final_runs_wait_for_all_rates_and_take_the_best(tmp_path: Path) -> None:
    study = Study(tmp_path, {"date": "today"})
    for rate, auc in zip(RATES[:-1], (70.0, 80.0)):
        study.keep([_row(_tuning(rate), auc)], torch.zeros(2, 3).half())
        assert study.rate(MAIN, "QUILT") is None
    assert _next(study) == _tuning(RATES[-1])
    study.keep([_row(_tuning(RATES[-1]), 75.0)], torch.zeros(2, 3).half())
    assert study.rate(MAIN, "QUILT") == RATES[1]
    assert _next(study) == Job(
        phase="final", problem=MAIN, row="QUILT", seed=1, rounds=80, rate=RATES[1]
    )


def test_an_interrupted_study_goes_on_where_it_was(tmp_path: Path) -> None:
    study = Study(tmp_path, {"date": "today"})
    for rate, auc in zip(RATES, (70.0, 60.0, 65.0)):
        study.keep([_row(_tuning(rate), auc)], torch.zeros(2, 3).half())
    again = Study(tmp_path, {})
    assert again.finished == study.finished
    assert again.rate(MAIN, "QUILT") == RATES[0]
    assert (tmp_path / "quilt_scores.f16").stat().st_size == 3 * 2 * 3 * 2


def test_the_best_idea_is_known_once_all_were_screened(tmp_path: Path) -> None:
    study = Study(tmp_path, {})
    for place, name in enumerate(CANDIDATES):
        assert study.best_candidate(MAIN) is None
        job = Job(phase="screening", problem=MAIN, row=name, seed=100, rounds=80, rate=1e-3)
        study.keep([_row(job, 70.0 + (name == IDEAS[2]) + place / 100)], torch.zeros(1).half())
    assert study.best_candidate(MAIN) == IDEAS[2]


def test_tables_by_hand(tmp_path: Path) -> None:
    # QUILT minus FedAvg-PL is 1, 2 and 3: mean 2, sd 1, error 1 / sqrt(3), t(2) at 97.5 % 4.3027.
    # Of the gap of 8 to full labels a quarter is closed.
    study = Study(tmp_path, {})
    aucs = {"FedAvg-PL": (80, 81, 82), "QUILT": (81, 83, 85), "full labels": (88, 89, 90)}
    for name, found in aucs.items():
        for seed, auc in enumerate(found):
            job = Job(phase="final", problem=MAIN, row=name, seed=seed, rounds=80, rate=1e-3)
            rows = [_row(job, auc), _row(job, auc, served="average")]
            study.keep(rows, torch.zeros(1).half())
    rows = finals(read([tmp_path]), _only_rate)
    [ours] = [line for line in means(rows) if line["row"] == "QUILT"]
    assert (ours["seeds"], ours["macro_auc"], ours["macro_auc_sd"]) == (3, 83.0, 2.0)
    assert ours["gap_closed_macro_auc"] == 0.25
    [found] = [line for line in differences(rows) if line["metric"] == "macro_auc"]
    assert (found["row"], found["against"], found["better_on"]) == ("QUILT", "FedAvg-PL", 3)
    half = 4.3027 / 3**0.5
    assert (found["mean"], found["low"], found["high"]) == pytest.approx(
        (2.0, 2 - half, 2 + half), abs=0.01
    )


def test_half_of_a_run_is_a_run_unless_its_schedule_follows_the_rounds(tmp_path: Path) -> None:
    study = Study(tmp_path, {})
    for job in _finals(MAIN, "QUILT", 80) + _finals(MAIN, "FedMLP", 80):
        rows = [_row(job, auc, round=after) for after, auc in ((40, 70.0), (48, 71.0), (80, 75.0))]
        study.keep(rows, torch.zeros(1).half())
    lines = means(finals(read([tmp_path]), _only_rate))
    found = {(line["problem"], line["row"]): line for line in lines}
    whole, half = f"{MAIN}, 80 rounds", f"{MAIN}, 40 rounds"
    assert found.keys() == {(whole, "QUILT"), (half, "QUILT"), (whole, "FedMLP")}
    assert found[half, "QUILT"]["macro_auc"] == 70.0
    assert (found[half, "QUILT"]["bytes_up"], found[whole, "QUILT"]["bytes_up"]) == (4.0, 8.0)


def test_final_runs_count_at_the_chosen_rate_and_of_one_folder_only(tmp_path: Path) -> None:
    for folder, auc in (("gpu", 70.0), ("cpu", 60.0)):
        (tmp_path / folder).mkdir()
        study = Study(tmp_path / folder, {})
        for rate in RATES:
            study.keep([_row(_tuning(rate), 90.0 if rate == RATES[1] else 80.0)], None)
            for job in _finals(MAIN, "QUILT", 40, rate):
                study.keep([_row(job, auc + job.seed)], None)
            cut = Job(
                phase="final", problem=MAIN, row="QUILT without guard", seed=1, rounds=40, rate=rate
            )
            study.keep([_row(cut, auc)], None)
    rows = read([tmp_path / "gpu", tmp_path / "cpu"])
    one, other = finals(rows, Study.of(rows).rate)
    assert (one["macro_auc"], other["macro_auc"]) == ("71.0", "72.0")
    assert float(one["rate"]) == float(other["rate"]) == RATES[1]


def test_facts_of_a_run_are_committed_with_its_last_round(tmp_path: Path) -> None:
    made_with = {
        "date": "today",
        "command": "a --out /b/c --folder /e --d",
        "hardware": "b",
        "versions": "c",
    }
    study = Study(tmp_path, made_with)
    job = Job(phase="final", problem=MAIN, row="QUILT", seed=1, rounds=80, rate=1e-3)
    extra = {"auc_per_class": "0.5 0.6"}
    study.keep([_row(job, 70.0, round=40, **extra), _row(job, 75.0, **extra)], None)
    early, last = kept(read([tmp_path]))
    assert (early["macro_auc"], early["auc_per_class"], early["date"]) == ("70.0", "", "")
    assert (last["macro_auc"], last["auc_per_class"], last["date"]) == ("75.0", "0.5 0.6", "today")
    assert last["command"] == "a --out FOLDER --folder FOLDER --d"
    assert not {"scores_at", "folder"} & last.keys()


def test_a_run_that_is_cut_off_keeps_its_first_half(tmp_path: Path) -> None:
    study = Study(tmp_path, {"date": "today"})
    (tmp_path / "halfway").mkdir()
    cut = Job(phase="final", problem=MAIN, row="QUILT", seed=1, rounds=80, rate=1e-3)
    assert not study.keep_half(cut)
    half = _row(cut, 70.0, round=40, rounds=40)
    _write(study.halfway(cut), [half])
    assert study.keep_half(cut)
    assert (study.least_rounds(cut), cut in study.finished) == (40, False)
    [row] = read([tmp_path])
    assert (row["rounds"], row["macro_auc"], row["scores_at"], row["date"]) == (
        "40",
        "70.0",
        "",
        "today",
    )


def test_ranks_take_the_longest_runs_of_problems_where_every_rival_ran(tmp_path: Path) -> None:
    study = Study(tmp_path, {})
    rivals = [name for name in DECIDING if name != "full labels"]
    for problem, lengths in ((MAIN, (40, 80)), (SCENES, (16,)), (THREE, (40,))):
        for rounds in lengths:
            for place, name in enumerate(rivals[: 2 if problem == THREE else None]):
                for job in _finals(problem, name, rounds):
                    study.keep([_row(job, 60.0 + rounds + place)], torch.zeros(1).half())
    found = ranks(finals(read([tmp_path]), _only_rate), "macro_auc", rivals)
    assert found is not None
    assert list(found["data_sets"]) == [f"{SCENES}, 16 rounds", f"{MAIN}, 80 rounds"]
    assert found["mean_ranks"]["FedAvg-PL"] == len(rivals)  # the lowest AUC on both
    assert found["mean_ranks"][rivals[-1]] == 1


def test_patients_are_on_one_side_and_every_class_on_both() -> None:
    patients = np.repeat(np.arange(60), 3)
    labels = (np.random.RandomState(0).rand(180, 2) < 0.3).astype(np.uint8)
    for part in ("test", "validation"):
        trained, tested = _drawn(labels, patients, 1, part, 0.3)
        assert not set(patients[trained]) & set(patients[tested])
        assert min(labels[trained].sum(0).min(), labels[tested].sum(0).min()) >= 8
    final = _drawn(labels, patients, 1, "test", 0.3)[1]
    assert not (final & (trained | tested)).any()


def test_candidates_are_no_methods_of_the_package() -> None:
    assert not METHODS.keys() & CANDIDATE_METHODS.keys()


def test_longer_tuning_of_the_plan_replaces_shorter_and_no_failure_decides(tmp_path: Path) -> None:
    study, plan = Study(tmp_path, {}), (Part("tuning", MAIN, ("QUILT",), 40),)
    for rate, auc in zip(RATES, (70.0, 60.0, 65.0)):
        study.keep([_row(replace(_tuning(rate), rounds=24), auc)], None)
    assert study.rate(MAIN, "QUILT") == RATES[0]
    assert study.rate(MAIN, "QUILT", plan) is None  # 40 rounds are to come
    for rate, auc in zip(RATES[:-1], (70.0, 80.0)):
        study.keep([_row(_tuning(rate), auc)], None)
    study.failed.add(_tuning(RATES[-1]))
    assert study.rate(MAIN, "QUILT", plan) == RATES[0]
    study.failed.clear()
    study.keep([_row(_tuning(RATES[-1]), 75.0)], None)
    assert study.rate(MAIN, "QUILT", plan) == study.rate(THREE, "QUILT", plan) == RATES[1]


def test_an_idea_that_failed_is_not_the_best_and_stops_nothing(tmp_path: Path) -> None:
    study = Study(tmp_path, {})
    for name in CANDIDATES:
        job = Job(phase="screening", problem=MAIN, row=name, seed=100, rounds=80, rate=1e-3)
        if name == IDEAS[0]:
            study.failed.add(job)
        else:
            study.keep([_row(job, 71.0 if name == IDEAS[1] else 70.0)], None)
    assert study.best_candidate(MAIN) == IDEAS[1]


def test_prevalence_is_matched_and_correlations_are_of_one_feature_with_itself() -> None:
    logits = torch.randn(400, 2, generator=torch.Generator().manual_seed(1))
    prevalence = torch.tensor([0.1, 0.4])
    shifted = matched(logits, prevalence) + torch.logit(prevalence)
    assert torch.allclose(torch.sigmoid(shifted).mean(0), prevalence, atol=1e-3)
    # Two features that do not correlate, in four rows, with a variance of 4/3.
    features = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    # Standardised squares are 3/4 each, so the diagonal is 0.75: (1 - 0.75)^2 is the mean of two.
    assert float(barlow_twins(features, features)) == pytest.approx(0.0625, abs=1e-3)
    # Swapped, the diagonal is 0 and what is off it 0.75: 1 + 0.005 * 0.75^2.
    swapped = barlow_twins(features, features.flip(1))
    assert float(swapped) == pytest.approx(1 + 0.005 * 0.5625, abs=1e-3)


def test_the_methods_page_shows_the_views_that_were_measured() -> None:
    (shown,) = blocks("docs/methods/quilt.md", "toml")
    problem, row = PROBLEMS[MAIN], "QUILT, both views"
    measured = {"views": views_of(problem, row), "method": ROWS[row]}
    assert tomllib.loads(shown) == measured
    clients = {"partition": problem.partition, "annotation": problem.annotation}
    recipe = recipe_from({"data": {"name": "digits-mosaic"}, **clients, **measured})
    assert recipe.method.views(0) == ("strong", "weak")
