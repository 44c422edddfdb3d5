"""The demo: every method gets the same data and training, and its sentences the right numbers."""

from __future__ import annotations

from pathlib import Path

from fedquilt.recipes.catalogue import find_recipe
from fedquilt.recipes.recipe import read_recipe
from fedquilt.runs.demo import METHODS, SEEDS, conclusions, demo_recipes


def test_methods_differ_in_the_method_only() -> None:
    recipes = [*demo_recipes(Path("out")).values()]
    assert len(recipes) == len(METHODS) * len(SEEDS)
    for seed in SEEDS:
        settings = [recipe.to_dict() for recipe in recipes if recipe.seed == seed]
        assert [each["method"]["name"] for each in settings] == [*METHODS]
        training = [each.pop("method")["training"] for each in settings]
        assert all(each == training[0] for each in training)
        assert all(each == settings[0] for each in settings)


def test_the_demo_trains_quilt_as_the_shipped_recipe_does() -> None:
    [ours] = demo_recipes(Path("out"), SEEDS[:1]).keys() & {Path("out") / f"quilt-seed{SEEDS[0]}"}
    recipe = demo_recipes(Path("out"), SEEDS[:1])[ours]
    assert recipe.method == read_recipe(find_recipe("digits-quilt")).method


def test_conclusions_by_hand() -> None:
    # FedMLP is 0.02 and -0.01 ahead of FedAvg-PL, QUILT 0.03 and 0.01 ahead of FedMLP.
    aucs = {
        "fedavg": [0.5, 0.5],
        "fedavg-pl": [0.9, 0.9],
        "fedmlp": [0.92, 0.89],
        "quilt": [0.95, 0.9],
        "full-labels": [1.0, 1.0],
    }
    groups = [
        {"label": name, "metrics": {"bacc": {"mean": 0.5}, "macro_auc": {"values": values}}}
        for name, values in aucs.items()
    ]
    first, second, third = conclusions({"groups": groups})
    assert "FedAvg collapses to a BACC of 50.0 %" in first
    assert "+0.5 points of AUC on average and is better on 1 of 2 seeds" in second
    assert "+2.0 points of AUC on average and is better on 2 of 2 seeds" in third
