"""The studies of private training and of attacks: every job has a recipe, and tables by hand."""

from __future__ import annotations

import pytest

from benchmarks.studies import attacks, private_training
from benchmarks.studies.private_training import DELTA, EPSILONS, METHODS, SEEDS, TUNING_SEED


@pytest.mark.parametrize("rule", attacks.RULES)
def test_every_rule_makes_a_recipe(rule: str) -> None:
    recipe = attacks.recipe_of(rule, 21)
    assert recipe.robust.rule == attacks.RULES[rule]["rule"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("data", SEEDS)
def test_every_job_of_private_training_makes_a_recipe(data: str, method: str) -> None:
    for job in private_training.jobs_of(data, method, EPSILONS, [TUNING_SEED]):
        recipe = private_training.recipe_of({**job, "lr": 1e-3, "clip": 0.1})
        assert recipe.privacy.adds_noise == (job["epsilon"] != "none")
        assert not recipe.privacy.adds_noise or recipe.privacy.delta == DELTA


def test_settings_are_chosen_on_the_tuning_seed_of_the_same_kind() -> None:
    job = private_training.jobs_of("digits", "fedavg-pl", ["8"], [21])[0]
    tried = [
        {**job, "seed": seed, "epsilon": epsilon, "lr": lr, "clip": clip, "macro_auc": auc}
        for seed, epsilon, lr, clip, auc in (
            (TUNING_SEED, "3", 1e-3, 1.0, 70.0),
            (TUNING_SEED, "3", 3e-3, 0.1, 80.0),
            (TUNING_SEED, "none", 1e-2, 1.0, 99.0),
            (21, "3", 1e-2, 1.0, 95.0),
        )
    ]
    assert private_training.best_settings(tried, job) == {"lr": 3e-3, "clip": 0.1}


def test_a_table_of_private_training_leaves_the_tuning_seed_out() -> None:
    job = private_training.jobs_of("digits", "fedavg-pl", ["8"], [21])[0]
    found = private_training.summary(
        [
            {**job, "seed": seed, "lr": 1e-3, "clip": 1.0, "macro_auc": auc, "map": 9, "seconds": 2}
            for seed, auc in ((TUNING_SEED, 10.0), (21, 90.0), (22, 92.0))
        ]
    )
    (line,) = found
    assert (line["epsilon"], line["runs"], line["macro_auc"]) == ("8", 2, 91.0)
    assert line["macro_auc_deviation"] == 1.41


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
