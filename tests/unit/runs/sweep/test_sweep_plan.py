"""A study file: what is tried, with which budget, and mistakes in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedquilt.core.errors import UserError
from fedquilt.runs.sweep.plan import Span, Sweep, SweepPlan, read_sweep
from fedquilt.runs.sweep.search import grid_points, grid_searches

BASE = """
rounds = 2
data = {name = "digits-mosaic"}
partition = {name = "iid", clients = 3}
annotation = {name = "missing", missing = 1}
"""


def plan_of(tmp_path: Path, text: str, overrides: tuple[str, ...] = ()) -> SweepPlan:
    file = tmp_path / "study.toml"
    file.write_text(BASE + text, encoding="utf-8")
    return read_sweep(file, overrides)


TWO = """
method = {training = {batch_size = 4}}
[sweep]
methods = ["fedavg-pl", "fedprox"]
[sweep.settings]
"method.training.lr" = [0.1, 0.2]
[sweep.own.fedprox]
"method.mu" = [1.0, 2.0]
cohort_size = [1, 2, 3]
"""


def test_grids_have_every_combination_in_order(tmp_path: Path):
    plan = plan_of(tmp_path, TWO)
    assert grid_points(plan.choices("fedavg-pl")) == [
        {"method.training.lr": 0.1},
        {"method.training.lr": 0.2},
    ]
    points = grid_points(plan.choices("fedprox"))
    assert len(points) == 2 * 2 * 3
    assert points[4] == {"method.training.lr": 0.1, "method.mu": 2.0, "cohort_size": 2}


def test_a_recipe_has_the_settings_the_method_and_the_seed(tmp_path: Path):
    recipe = plan_of(tmp_path, TWO).recipe(
        "fedprox", {"method.training.lr": 0.1, "method.mu": 2.0, "cohort_size": 2}, 7
    )
    found = recipe.to_dict()
    assert (found["method"]["name"], found["method"]["mu"]) == ("fedprox", 2.0)
    training = found["method"]["training"]
    assert (training["lr"], training["batch_size"]) == (0.1, 4)
    assert (found["seed"], found["cohort_size"]) == (7, 2)


def trials(plan: SweepPlan) -> dict[str, list[Any]]:
    searches, _ = grid_searches(plan)
    return {name: list(iter(search.ask, None)) for name, search in searches.items()}


def test_the_budget_is_that_of_the_smallest_grid(tmp_path: Path):
    plan = plan_of(tmp_path, TWO)
    found = trials(plan)
    assert {name: len(each) for name, each in found.items()} == {"fedavg-pl": 2, "fedprox": 2}
    assert grid_searches(plan)[1] == ["fedprox: 2 of 12 combinations are tried, drawn at random"]
    assert trials(plan) == found  # the same draw after a restart


def test_a_budget_beyond_a_grid_is_said(tmp_path: Path):
    plan = plan_of(tmp_path, TWO, ("sweep.trials=5",))
    assert {name: len(each) for name, each in trials(plan).items()} == {
        "fedavg-pl": 2,
        "fedprox": 5,
    }
    assert grid_searches(plan)[1][0] == "fedavg-pl: its grid has 2 combinations, not 5"


def test_the_recipes_own_method_is_the_default(tmp_path: Path):
    plan = plan_of(tmp_path, 'method = {name = "fedavg"}\n[sweep]\nseeds = [4]')
    assert plan.methods == ("fedavg",)
    assert trials(plan)["fedavg"][0].settings == {}


def test_the_key_changes_with_what_a_score_depends_on(tmp_path: Path):
    keys = {
        plan_of(tmp_path, TWO, changes).key("fedprox")
        for changes in ((), ("rounds=3",), ("sweep.tuning_seeds=[5]",), ("sweep.own={}",))
    }
    assert len(keys) == 4
    same = plan_of(tmp_path, TWO, ("sweep.trials=9", "sweep.seeds=[8]"))
    assert same.key("fedprox") in keys


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"has no table \[sweep\].*for one run use: fedquilt run"),
        ("[sweep]", r"sweep.methods needs distinct methods, found \[\]"),
        ('[sweep]\nmethods = ["a"]\nseeds = []', "sweep.seeds needs distinct seeds"),
        (
            '[sweep]\nmethods = ["a"]\nseedz = [1]',
            "sweep has no field 'seedz'; did you mean 'seeds'",
        ),
        (
            '[sweep]\nmethods = ["a"]\nsearch = "optuna"',
            "needs sweep.trials, the number per method",
        ),
        ('[sweep]\nmethods = ["a"]\ntrials = 0', "sweep.trials must be at least 1, found 0"),
        ('[sweep]\nmethods = ["a"]\n[sweep.own.b]\nrounds = [1]', "sweep.own.b: the sweep has no"),
        ('[sweep]\nmethods = ["a"]\n[sweep.settings]\nrounds = [1, 1]', "'rounds' needs distinct"),
        ('[sweep]\nmethods = ["a"]\n[sweep.settings]\nrounds = 3', "rounds must be a list"),
        ('method = {name = "b"}\n[sweep]\nmethods = ["a"]', "'b' is not among sweep.methods"),
    ],
)
def test_mistakes_are_answered(text: str, message: str, tmp_path: Path):
    with pytest.raises(UserError, match=message):
        plan_of(tmp_path, text)


def test_a_range_needs_optuna():
    with pytest.raises(UserError, match="'lr' is a range, which a grid cannot try"):
        grid_points({"lr": Span(low=0.1, high=1.0)})
    with pytest.raises(UserError, match="a range needs low below high, and above 0 with log"):
        Span(low=0.0, high=1.0, log=True)


def test_a_place_that_is_no_table_is_answered():
    plan = SweepPlan("x", {"rounds": 3}, Sweep(methods=("fedavg",)))
    with pytest.raises(UserError, match="'rounds' is not a table of settings"):
        plan.recipe("fedavg", {"rounds.lr": 1}, 0)
