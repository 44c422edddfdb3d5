"""The study's problems and rows: what is trained on what, and which learning rates are tried."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.studies.quilt.candidates import CANDIDATES
from fedquilt.methods import METHODS
from fedquilt.recipes.recipe import Recipe, recipe_from

CR = {"name": "fedmlp", "detection": False, "warmup_rounds": 0}
SEMI = {"name": "quilt-semi-supervised"}
MIXUP = {"mixing": 0.5}
SUPERVISED = {  # FedAvg-PL's loss and server, in the class that mixes
    "consistency": False,
    "logit_adjustment": False,
    "over_relaxation": 0.0,
    "head_rows": "all",
    "positive_weight": "inverse-prevalence",
}
STRONG_VIEW = {"student_sees": "strong"}
BOTH = {"student_sees": "both"}
EACH_ROUND = {"once_a_round": True}
SETTINGS: dict[str, dict[str, Any]] = {  # of SemiSupervised
    "strong view": STRONG_VIEW,
    "MixUp": MIXUP,
    "strong view, MixUp": {**STRONG_VIEW, **MIXUP},
    "strong view, MixUp, average teacher": {**STRONG_VIEW, **MIXUP, "kept": 0.8},
    "strong view, average teacher": {**STRONG_VIEW, "kept": 0.8},
    "average teacher": {"kept": 0.8},
    "strong view, MixUp, round's targets": {**STRONG_VIEW, **MIXUP, **EACH_ROUND},
    "strong view, round's targets, matched": {**STRONG_VIEW, **EACH_ROUND, "matched": True},
    "strong view, MixUp, round's targets, matched, sharp": {
        **STRONG_VIEW,
        **MIXUP,
        **EACH_ROUND,
        "matched": True,
        "temperature": 0.5,
    },
    "strong view, blanks 5": {**STRONG_VIEW, "blanks": 5.0},
    "strong view, soft labels": {**STRONG_VIEW, "soft_labels": True},
    "both views, Barlow Twins": {**BOTH, "decorrelated": 0.02},
    "both views, features": {**BOTH, "features": 0.1},
    "both views, own targets": {**BOTH, "own_targets": True},
    "both views, blanks 0.3": {**BOTH, "blanks": 0.3},
    "both views, blanks 0.1": {**BOTH, "blanks": 0.1},
    "both views, FedLSM's strong view": BOTH,
    "weak view twice": {"student_sees": "weak twice"},
    "blanks 0.3": {"blanks": 0.3},
}
ON_THEIR_OWN = [name for name in CANDIDATES if name not in (SEMI["name"], "full-labels-mixed")]
ROWS: dict[str, dict[str, Any]] = {
    "full labels": {"name": "full-labels"},
    "FedAvg-PL": {"name": "fedavg-pl"},
    "FedAvg-PL, server lr 2": {"name": "fedavg-pl", "server_step": {"lr": 2.0}},
    "FedMLP": {"name": "fedmlp"},
    "FedLSM": {"name": "fedlsm"},
    "FedNoRo": {"name": "fednoro"},
    "CR": CR,
    "CR, server lr 2": {**CR, "server_step": {"lr": 2.0}},
    "CR, annotators' rows": {**CR, "head_rows": "annotators"},
    "CR, server lr 2, annotators' rows": {
        **CR,
        "server_step": {"lr": 2.0},
        "head_rows": "annotators",
    },
    "QUILT": {"name": "quilt"},
    "QUILT without guard": {"name": "quilt", "guard": False},
    "QUILT, momentum 0.5": {
        "name": "quilt",
        "over_relaxation": 0.0,
        "server_step": {"momentum": 0.5},
    },
    **{f"QUILT, {name.removeprefix('quilt-')}": {"name": name} for name in ON_THEIR_OWN},
    **{f"QUILT, {words}": {**SEMI, **settings} for words, settings in SETTINGS.items()},
    "QUILT, both views": {"name": "quilt", "both_views": True},
    "FedAvg-PL, strong view": {"name": "fedavg-pl"},
    "FedAvg-PL, strong view, MixUp": {**SEMI, **SUPERVISED, "student_sees": "strong", **MIXUP},
    "FedAvg-PL, both views": {**SEMI, **SUPERVISED, **BOTH},
    "full labels, both views": {**SUPERVISED, **BOTH, "name": "full-labels-mixed"},
    "full labels, strong view": {"name": "full-labels"},
    "full labels, strong view, MixUp": {
        **SUPERVISED,
        **MIXUP,
        "name": "full-labels-mixed",
        "student_sees": "strong",
    },
}
# Of photographs; FedLSM keeps its own. In these rows even the only view is strong.
STRONG = {"degrees": 15.0, "translate": 0.12, "scale": [0.8, 1.25], "brightness": 0.3}
STRONG_ONLY = ("FedAvg-PL, strong view", "full labels, strong view")
SUITED = ("fedmlp", "fednoro")  # their schedules follow the number of rounds
SCHEDULED = ("quilt-fading", "quilt-late-strong", "quilt-late-sharp", "quilt-late-agreeing")


def follows_the_rounds(row: str) -> bool:
    """Whether the first half of a run is not a run of half as many rounds."""
    name = ROWS[row]["name"]
    return name in SCHEDULED or (name in SUITED and not row.startswith("CR"))


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A data set, its clients and their annotations; the seed draws all of them."""

    data: str  # of data_sets.LOADERS
    partition: dict[str, Any]
    annotation: dict[str, Any]
    rounds: int
    every: int  # rounds between evaluations
    rates: tuple[float, ...]  # learning rates that are tried
    rates_from: str | None = None  # the problem whose choice is used
    model: dict[str, Any] = field(default_factory=lambda: {"backbone": "small-resnet"})
    training: dict[str, Any] = field(default_factory=dict)
    views: dict[str, Any] = field(default_factory=dict)  # for methods with a published strong view
    strong: dict[str, Any] = field(default_factory=lambda: STRONG)


TEN = {"name": "iid", "clients": 10}
ONE_OF_TEN = {"name": "missing", "missing": 9, "one_to_one": True}
PRETRAINED = {"backbone": "resnet18", "weights": "resnet18.safetensors", "small_stem": True}
FROM_SCRATCH = (3e-4, 1e-3, 3e-3)
FINE_TUNING = (3e-5, 1e-4, 3e-4)
ON_DIGITS: dict[str, Any] = {
    "model": {"backbone": "small-cnn"},
    "training": {"epochs": 2, "precision": "float32"},
    "views": {"weak": "plain", "strong": "plain"},
    "strong": {"horizontal_flip": 0.0, "degrees": 10.0, "translate": 0.06},
}
PROBLEMS = {
    "composites, 1 of 10": Problem(
        data="composites",
        partition=TEN,
        annotation=ONE_OF_TEN,
        rounds=80,
        every=8,
        rates=FROM_SCRATCH,
    ),
    "composites, 3 of 10": Problem(
        data="composites",
        partition=TEN,
        annotation={"name": "missing", "missing": 7},
        rounds=40,
        every=8,
        rates=(),
        rates_from="composites, 1 of 10",
    ),
    "composites, 1 of 10, Dirichlet": Problem(
        data="composites",
        partition={"name": "dirichlet", "clients": 10, "concentration": 0.5},
        annotation=ONE_OF_TEN,
        rounds=40,
        every=8,
        rates=(),
        rates_from="composites, 1 of 10",
    ),
    "scenes, 1 of 5": Problem(
        data="scenes",
        partition={"name": "iid", "clients": 5},
        annotation={"name": "missing", "missing": 4, "one_to_one": True},
        rounds=16,
        every=2,
        rates=FINE_TUNING,
        model=PRETRAINED,
    ),
    "radiographs, 2 of 6": Problem(
        data="radiographs",
        partition={"name": "iid", "clients": 3},
        annotation={"name": "missing", "missing": 4},
        rounds=16,
        every=2,
        rates=FINE_TUNING,
        model=PRETRAINED,
    ),
    "digits, 1 of 5": Problem(
        data="digits",
        partition={"name": "iid", "clients": 5},
        annotation={"name": "missing", "missing": 4, "one_to_one": True},
        rounds=40,
        every=5,
        rates=(3e-3, 6e-3, 1.2e-2),
        **ON_DIGITS,
    ),
    "digits, 1 of 5, Dirichlet": Problem(
        data="digits",
        partition={"name": "dirichlet", "clients": 5, "concentration": 0.5},
        annotation={"name": "missing", "missing": 4, "one_to_one": True},
        rounds=40,
        every=5,
        rates=(),
        rates_from="digits, 1 of 5",
        **ON_DIGITS,
    ),
}


def views_of(problem: Problem, row: str) -> dict[str, Any]:
    """The problem's views; both views, candidates and their baselines have its strong view."""
    if row in STRONG_ONLY:
        return {**problem.views, "weak": problem.strong}
    own = ROWS[row]["name"] in CANDIDATES or "both_views" in ROWS[row]
    if row.endswith("FedLSM's strong view") or not own:
        return problem.views
    return {**problem.views, "strong": problem.strong}


def recipe_of(
    problem: Problem, row: str, rate: float, seed: int, rounds: int, folder: Path
) -> Recipe:
    """The data of the recipe is a placeholder: the study loads its own.

    Candidates are methods only in a process that trains them: tests go over all of METHODS.
    """
    for name, place in CANDIDATES.items():
        METHODS[name] = f"benchmarks.studies.quilt.candidates:{place}"
    training = {"lr": rate, "precision": "bfloat16", **problem.training}
    method = {**ROWS[row], "training": training}
    if method["name"] in SCHEDULED:
        method["rounds"] = rounds
    model = dict(problem.model)
    if "weights" in model:
        model["weights"] = str(folder / model["weights"])
    return recipe_from(
        {
            "data": {"name": "digits-mosaic"},
            "partition": problem.partition,
            "annotation": problem.annotation,
            "model": model,
            "views": views_of(problem, row),
            "method": method,
            "rounds": rounds,
            "seed": seed,
        }
    )
