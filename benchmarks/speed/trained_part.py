"""Bytes and seconds of a round if only the head is trained, only the last block, or everything.

    python -m benchmarks.speed.trained_part

ResNet-18 and FedAvg-PL on digit mosaics: two clients, five classes. Bytes are those that a run's
history counts, for one client and one round; they do not depend on the machine.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness.result_csv import write_results
from fedquilt.recipes.recipe import recipe_from
from fedquilt.runs.experiment import run
from fedquilt.runs.finished_run import read_run

CLIENTS, ROUNDS = 2, 3
PARTS = ("all", "last-block", "head")


def measure(part: str, folder: Path) -> dict[str, Any]:
    recipe = recipe_from(
        {
            "data": {"name": "digits-mosaic", "train": 64, "test": 8},
            "partition": {"name": "iid", "clients": CLIENTS},
            "annotation": {"name": "full"},
            "views": {"weak": "plain"},
            "model": {"backbone": "resnet18", "train": part},
            "method": {"name": "fedavg-pl"},
            "evaluation": {"every": ROUNDS},
            "rounds": ROUNDS,
        }
    )
    run(recipe, folder / part, engine="sequential")
    history = read_run(folder / part).history
    down = {record["bytes_down"] // CLIENTS for record in history}
    up = {record["bytes_up"] // CLIENTS for record in history}
    return {
        "trained": part,
        "bytes_down_per_client_and_round": down.pop(),
        "bytes_up_per_client_and_round": up.pop(),
        "seconds_per_round": round(statistics.median(r["seconds"] for r in history), 2),
        "model_file_bytes": (folder / part / "model.safetensors").stat().st_size,
    }


def main() -> None:
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for part in PARTS:
            rows.append(measure(part, Path(scratch)))
            print(rows[-1], flush=True)
    write_results("speed/trained_part", rows)


if __name__ == "__main__":
    main()
