"""The studies of private training and of attacks: every job has a recipe, and tables by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.harness.frozen_features import TABLE, TOP, Features, stored_features
from benchmarks.studies import attacks, private_training
from benchmarks.studies.private_training import CASES, CNN, DELTA, FROZEN, TUNING_SEED, job_of


@pytest.mark.parametrize("rule", attacks.RULES)
def test_every_rule_makes_a_recipe(rule: str) -> None:
    recipe = attacks.recipe_of(rule, 21)
    assert recipe.robust.rule == attacks.RULES[rule]["rule"]


@pytest.mark.parametrize("case", CASES)
def test_every_job_of_private_training_makes_a_recipe(case: str) -> None:
    for job in [*private_training.tries(case), job_of(case, "1", 21, 1e-3, 0.1, 0.1)]:
        recipe = private_training.recipe_of(job)
        assert recipe.privacy.adds_noise == (job["epsilon"] != "none")
        assert not recipe.privacy.adds_noise or recipe.privacy.delta == DELTA
        assert recipe.method.training.batch_size == round(job["lot"] * CASES[case][2] / 5)
        assert (recipe.model.backbone_name == "small-cnn") == (job["network"] == CNN)


def test_a_run_of_private_training_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_training, "ROUNDS", 1)
    monkeypatch.setitem(CASES, "digits-frozen", ("digits", FROZEN, 50))
    (tmp_path / "features").mkdir()
    for split, count in (("train", 50), ("test", 800)):
        levels = np.random.default_rng(0).integers(0, 256, (count, 4, 1, 1), dtype=np.uint8)
        np.save(tmp_path / "features" / f"digits-21-{split}.npy", levels)
    for epsilon in ("none", "8"):
        job = job_of("digits-frozen", epsilon, 21, 1e-3, 0.5, 1.0)
        found = private_training.one_run(tmp_path, job)
        assert 30 < found["macro_auc"] < 70  # nothing can be learnt
        assert found["seconds"] > 0


def tried(case: str, seed: int, epsilon: str, lr: float, auc: float) -> dict[str, object]:
    found = {"macro_auc": auc, "map": 9, "seconds": 2, "hardware": f"machine {seed}"}
    return {**job_of(case, epsilon, seed, lr, 0.5, 1.0), **found}


def test_settings_are_chosen_on_the_tuning_seed_of_the_same_kind() -> None:
    rows = [
        tried("digits", TUNING_SEED, "3", 1e-3, 70.0),
        tried("digits", TUNING_SEED, "3", 3e-3, 80.0),
        tried("digits", TUNING_SEED, "none", 1e-2, 99.0),
        tried("digits-frozen", TUNING_SEED, "3", 1e-2, 98.0),
        tried("digits", 21, "3", 1e-2, 95.0),
    ]
    best = {"lr": 3e-3, "lot": 0.5, "clip": 1.0}
    assert private_training.chosen(rows, "digits", "8") == best
    assert private_training.chosen(rows, "more-digits", "8") == best
    assert private_training.chosen(rows, "digits", "none")["lr"] == 1e-2


def test_a_table_of_private_training_leaves_the_tuning_seed_out() -> None:
    seeds = ((TUNING_SEED, 10.0), (21, 90.0), (22, 92.0))
    rows = [tried("digits", seed, "8", 1e-3, auc) for seed, auc in seeds]
    (line,) = private_training.summary(rows)
    assert (line["epsilon"], line["runs"], line["macro_auc"]) == ("8", 2, 91.0)
    assert line["macro_auc_deviation"] == 1.41
    assert line["run_on"] == "machine 21; machine 22"


def test_frozen_features_are_a_table_that_the_head_reads(tmp_path: Path) -> None:
    """In 8 bits of 0 to 4 a feature of 1 is 63.75, rounded to 64, and 9 is cut to 255."""
    levels = np.array([[64, 255, 0]], dtype=np.uint8)[:, :, None, None]
    (tmp_path / "features").mkdir()
    np.save(tmp_path / "features" / "kept.npy", levels)
    stored = stored_features(tmp_path, "kept", np.zeros((1, 1, 2, 2), np.uint8))
    read = (torch.from_numpy(stored) / 255 - TABLE["mean"][0]) / TABLE["std"][0]
    assert Features(3)(read).tolist() == [[pytest.approx(1.0, abs=TOP / 510), 4.0, 0.0]]


def test_a_table_of_attacks_has_means_deviations_and_early_ends() -> None:
    def row(attack: str, auc: object, ended: str = "") -> dict[str, object]:
        counted = {"refused": 2, "dropped": 0, "dropped_honest": 1}
        measured = {"mean_auc": auc, "worst_auc": auc, "backdoor_auc": ""}
        return {"attack": attack, "rule": "krum", **measured, **counted, "ended": ended}

    found = attacks.summary([row("none", 0.9), row("none", 0.8), row("huge", "", "not finite")])
    assert [(each["attack"], each["runs"], each["ended_early"]) for each in found] == [
        ("none", 2, 0),
        ("huge", 1, 1),
    ]
    assert found[0]["mean_auc"] == 0.85
    assert found[0]["mean_auc_deviation"] == pytest.approx(0.071)
    assert (found[1]["mean_auc"], found[1]["refused"]) == ("", 2)
