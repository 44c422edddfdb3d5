"""Effect of weight decay on unannotated head rows: FedAvg-PL and FedMLP on digit mosaics.

python -m benchmarks.studies.weight_decay
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness.result_csv import write_results
from fedquilt.recipes.recipe import read_settings, recipe_from
from fedquilt.runs.demo import BASE
from fedquilt.runs.finished_run import read_run
from fedquilt.runs.parallel import run_all

DECAYS: dict[str, dict[str, Any]] = {
    "none": {},
    "coupled 5e-4 (Adam with L2)": {"weight_decay": 5e-4, "decay": "coupled"},
    "coupled 5e-4, unannotated rows exempt": {
        "weight_decay": 5e-4,
        "decay": "coupled",
        "decay_unannotated_rows": False,
    },
    "decoupled 1e-2 (AdamW)": {"weight_decay": 1e-2, "decay": "decoupled"},
}
METHODS: dict[str, dict[str, Any]] = {
    "FedAvg-PL": {"name": "fedavg-pl"},
    "FedAvg-PL, head rows from annotators": {"name": "fedavg-pl", "head_rows": "annotated"},
    "FedMLP": {"name": "fedmlp"},
    "FedMLP, head rows from annotators": {"name": "fedmlp", "head_rows": "annotated"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[21, 22, 23, 24, 25])
    seeds = parser.parse_args().seeds
    base = read_settings(BASE) | {"evaluation": {"every": 30}, "checkpoint_every": 30}
    cells = [(decay, method) for decay in DECAYS for method in METHODS]
    with tempfile.TemporaryDirectory() as name:
        recipes = {}
        for number, (decay, method) in enumerate(cells):
            training = base["method"]["training"] | DECAYS[decay]
            settings_of_fedmlp = base["method"] if METHODS[method]["name"] == "fedmlp" else {}
            chosen = settings_of_fedmlp | METHODS[method] | {"training": training}
            for seed in seeds:
                data = base["data"] | {"seed": seed}
                settings = base | {"seed": seed, "data": data, "method": chosen}
                recipes[Path(name) / f"{number}-{seed}"] = recipe_from(settings)
        run_all(recipes, cache=Path(name), progress=lambda done, total: None)
        rows = []
        for number, (decay, method) in enumerate(cells):
            results = [read_run(Path(name) / f"{number}-{seed}").result for seed in seeds]
            row: dict[str, Any] = {"weight_decay": decay, "method": method}
            for metric in ("macro_auc", "bacc"):
                values = [100 * result["metrics"][metric] for result in results]
                row[metric] = round(statistics.fmean(values), 1)
                row[f"{metric}_deviation"] = round(statistics.stdev(values), 1)
                row[f"{metric}_per_seed"] = " ".join(f"{value:.1f}" for value in values)
            rows.append(row | {"seeds": " ".join(map(str, seeds))})
            print(decay, "|", method, "| AUC", row["macro_auc"], "BACC", row["bacc"])
    write_results("studies/weight_decay", rows)


if __name__ == "__main__":
    main()
