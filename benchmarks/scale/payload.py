"""Bytes of compact payloads beside what they cost: error of an update, and AUC, by seed.

    python -m benchmarks.scale.payload

The error is of one update as large as all of training: the change of the weights by the run with
the same seed that sends everything.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness.result_csv import Row, write_results
from fedquilt.core.compact_payload import compacted
from fedquilt.core.payload import Mean
from fedquilt.core.tree import Weights, flatten, sub
from fedquilt.models.network import layout_of, read_weights
from fedquilt.recipes.recipe import Recipe, read_settings, recipe_from
from fedquilt.runs.demo import BASE
from fedquilt.runs.finished_run import Run, read_run
from fedquilt.runs.parallel import run_all

WITHOUT = {"error_feedback": False}
PAYLOADS: dict[str, dict[str, Any]] = {
    "float32": {},
    "bfloat16": {"numbers": "bfloat16"},
    "int8": {"numbers": "int8"},
    "int8, no feedback": {"numbers": "int8"} | WITHOUT,
    "largest 10 %": {"top_share": 0.1},
    "largest 10 %, no feedback": {"top_share": 0.1} | WITHOUT,
    "int8, largest 10 %": {"numbers": "int8", "top_share": 0.1},
    "int8, largest 1 %": {"numbers": "int8", "top_share": 0.01},
}
METHODS = ("fedavg-pl", "fedmlp")


def recipe_of(payload: str, method: str, seed: int, rounds: int) -> Recipe:
    base = read_settings(BASE)
    same = base["method"] if base["method"]["name"] == method else {}
    training = base["method"]["training"]
    return recipe_from(
        base
        | {
            "seed": seed,
            "rounds": rounds,
            "data": base["data"] | {"seed": seed},
            "evaluation": {"every": rounds},
            "checkpoint_every": rounds,
            "method": same | {"name": method, "training": training},
            "payload": PAYLOADS[payload],
        }
    )


def change_of(run: Run, recipe: Recipe) -> Weights:
    """What training changed in the weights that are trained."""
    start = recipe.method.model_spec(recipe.model).build(
        channels=run.models.image_shape[0],
        class_count=len(run.classes),
        seed=recipe.seed,
        class_names=run.classes,
    )
    layout = layout_of(start, len(run.classes))
    after, before = read_weights(run.models.network(None)), read_weights(start)
    names = layout.body + layout.head
    changed: Weights = sub({n: after[n] for n in names}, {n: before[n] for n in names})
    return changed


def relative_error(change: Weights, recipe: Recipe) -> float:
    update, _ = compacted({"body": Mean(change, 1.0)}, {}, recipe.payload, recipe.seed)
    lost = flatten(sub(change, update["body"].value))
    return norm_of(lost) / norm_of(change)


def norm_of(weights: Weights) -> float:
    return float(torch.cat([leaf.reshape(-1) for leaf in weights.values()]).norm())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    cells = [(p, m, s) for m in METHODS for p in PAYLOADS for s in options.seeds]
    recipes = {cell: recipe_of(*cell, options.rounds) for cell in cells}
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folders = {cell: Path(name) / str(number) for number, cell in enumerate(cells)}
        run_all(
            {folders[cell]: recipes[cell] for cell in cells},
            cache=Path(name),
            workers=1,
        )
        for method in METHODS:
            for payload in PAYLOADS:
                mine = [(payload, method, seed) for seed in options.seeds]
                runs = [read_run(folders[cell]) for cell in mine]
                plain = [read_run(folders["float32", method, seed]) for seed in options.seeds]
                auc = [100 * run.result["metrics"]["macro_auc"] for run in runs]
                ahead = [a - 100 * run.result["metrics"]["macro_auc"] for a, run in zip(auc, plain)]
                up = [run.result["bytes_up"] for run in runs]
                errors = [
                    relative_error(change_of(run, recipes[cell]), recipes[cell])
                    for run, cell in zip(plain, mine)
                ]
                rows.append(
                    {
                        "method": method,
                        "payload": payload,
                        "mb_up": round(statistics.fmean(up) / 1e6, 2),
                        "times_fewer": round(plain[0].result["bytes_up"] / up[0], 1),
                        "relative_error_of_an_update": round(statistics.fmean(errors), 4),
                        "macro_auc": round(statistics.fmean(auc), 2),
                        "auc_change": round(statistics.fmean(ahead), 2),
                        "auc_change_per_seed": " ".join(f"{each:+.2f}" for each in ahead),
                        "rounds": options.rounds,
                        "seeds": " ".join(map(str, options.seeds)),
                    }
                )
                print(rows[-1], flush=True)
    write_results("scale/payload", rows)


if __name__ == "__main__":
    main()
