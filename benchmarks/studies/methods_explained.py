"""Why some methods trail FedAvg in ``methods_compared``: one component changed at a time.

    python -m benchmarks.studies.methods_explained --data scenes=FOLDER --weights FILE

All other settings are those of ``methods_compared``: compare a row with the same method's row in
``methods_compared.csv``.
"""

from __future__ import annotations

from benchmarks.harness.result_csv import write_results
from benchmarks.harness.resumable_runs import make_runs, summaries
from benchmarks.studies.methods_compared import (
    MISSING,
    ROUNDS,
    STEP_BY_STEP,
    STEPS,
    common_options,
    recipe_for,
)

NAME = "studies/methods_explained"
NOTHING_FILLED_IN = ("method.thresholds=[0, 1]", "method.uncertain_thresholds=[0, 1]")
LONGER = "three times the rounds"
STEPWISE = "by SGD, averaged after every step"  # as in FedAwS and FedALC
HALF = "Dirichlet, half of the classes"
EVEN = "even, all labels"
SKEWED = "Dirichlet, all labels"

# (setting, method): the changes to try. Rows of FedAvg are the reference of the others.
ON_BOTH: dict[tuple[str, str], dict[str, tuple[str, ...]]] = {
    (SKEWED, "site-aware"): {
        "graph network averaged too": ("method.share_graph=true",),
        "no graph network, one model": ("method.graph=false",),
        LONGER: (),
    },
    (MISSING, "fedavg"): {STEPWISE: ()},
    (MISSING, "fedavg-pl"): {STEPWISE: ()},
}
CHANGES: dict[str, dict[tuple[str, str], dict[str, tuple[str, ...]]]] = {
    "cifar10": {
        **ON_BOTH,
        ("identified classes", "fedlsm"): {
            "head rows over annotators": ("method.draw_counts=false",),
            "nothing filled in": NOTHING_FILLED_IN,
            "nothing filled in, weak view": (*NOTHING_FILLED_IN, "views.strong=weak"),
        },
        (HALF, "fednca-ml"): {
            "linear head": ("method.head=linear", "method.rejection=0", "method.compaction=0"),
            "cross-entropy alone": ("method.rejection=0", "method.compaction=0"),
            LONGER: (),
        },
        (HALF, "fedavg"): {LONGER: ()},
        ("one class each", "fpsl"): {"averaging alone": ("method.decoupling=false",)},
    },
    "scenes": {
        **ON_BOTH,
        (EVEN, "fedlgt"): {LONGER: ()},
        (EVEN, "fedavg"): {LONGER: ()},
        (SKEWED, "scene-gcn"): {LONGER: ()},
        (SKEWED, "fedavg"): {LONGER: ()},
        ("K-modes, all labels", "flag"): {"weighed by positives": ("method.alpha=1",)},
    },
}


def rounds_overrides(rounds: int) -> tuple[str, ...]:
    return (f"rounds={rounds}", f"evaluation.every={rounds}", f"checkpoint_every={rounds}")


def all_changes(data: str, change: str, own: tuple[str, ...]) -> tuple[str, ...]:
    """Return the overrides of a recipe; those of two changes depend on the data."""
    if change == LONGER:
        return rounds_overrides(3 * ROUNDS[data])
    if change == STEPWISE:
        training = (f"method.training.{name}={value}" for name, value in STEP_BY_STEP.items())
        return (*rounds_overrides(STEPS[data]), *training)
    return own


def main() -> None:
    options = common_options(__doc__).parse_args()
    options.data = dict(options.data)
    cells = {
        (data, *place, change): all_changes(data, change, own)
        for data in options.data
        for place, changes in CHANGES[data].items()
        for change, own in changes.items()
    }
    columns = ("data", "setting", "method", "change")
    wanted = {
        tuple(zip((*columns, "seed"), (*cell, str(seed)))): recipe_for(
            options, *cell[:3], seed, changes
        )
        for seed in options.seeds
        for cell, changes in cells.items()
    }
    made = make_runs(
        NAME, wanted, cache=options.cache, device=options.device, workers=options.workers
    )
    rows = summaries(made, columns, cells)
    for row in rows:
        print(*(row[name] for name in (*columns, "runs", "macro_auc", "bacc")), sep=", ")
    write_results(NAME, rows, options.device)


if __name__ == "__main__":
    main()
