"""Seconds and bytes of a deployed round: a ResNet-18 (45 MB), three sites on loopback over TLS.

    python -m benchmarks.speed.deploy [--rounds 6]

Every site trains one step of two images a round, so that a round is almost only overhead. The share
of training is measured at the sites, from request to reply.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.harness.result_csv import write_results
from fedquilt.core.atomic_files import write_json
from fedquilt.deploy.nvflare.demo_files import FEDQUILT, annotated_classes, free_port, write_sites
from fedquilt.deploy.nvflare.provision import provision
from fedquilt.deploy.study import study_from
from fedquilt.recipes.recipe import recipe_from
from fedquilt.runs.simulation import simulate

LIMIT_SECONDS = 6.0  # of a round, on two cores


def recipe_settings(rounds: int) -> dict[str, Any]:
    return {
        "rounds": rounds,
        "data": {"name": "digits-mosaic", "classes": 3, "canvas": 32, "train": 90, "test": 10},
        "partition": {"name": "iid", "clients": 3},
        "annotation": {"name": "full"},
        "model": {"backbone": "resnet18"},
        "views": {"weak": "plain"},
        "method": {"name": "fedavg", "training": {"steps": 1, "batch_size": 2}},
    }


def measure(rounds: int, folder: Path) -> dict[str, Any]:
    settings = recipe_settings(rounds)
    simulation = simulate(recipe_from(settings), folder / "cache")
    sites = write_sites(simulation, folder / "sites", {"min_cell": 1})
    classes = simulation.task.classes
    study = study_from(
        {
            "name": "bench",
            "classes": list(classes),
            "images": {"size": 32, "channels": 1},
            "sites": [
                {
                    "name": name,
                    "organisation": name.replace("-", "_"),
                    "annotates": annotated_classes(data, classes),
                }
                for name, data in simulation.clients.items()
            ],
            "server": {"host": "localhost", "port": free_port(), "bind": "127.0.0.1"},
            "recipe": settings,
        }
    )
    write_json(folder / "study.json", study.to_dict())
    kits = provision(study, folder / "kits")
    started: list[tuple[str, ...]] = [("server", "start", str(kits["server"]))]
    started += [("site", "start", str(kits[name]), str(path)) for name, path in sites.items()]
    variables = os.environ | {"OMP_NUM_THREADS": "1"}
    quiet: dict[str, Any] = {
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
        "env": variables,
    }
    processes = [subprocess.Popen([*FEDQUILT, *each], **quiet) for each in started]
    try:
        submit = ["deploy", "submit", str(folder / "study.json"), "--out", str(folder / "run")]
        command = [*FEDQUILT, *submit, "--kit", str(kits["coordinator"])]
        subprocess.run(command, check=True, env=variables)
    finally:
        for each in processes:
            each.send_signal(signal.SIGTERM)
        for each in processes:
            each.wait(60)
    history = [json.loads(line) for line in (folder / "run" / "history.jsonl").open()]
    return summary(history, [path.parent / "fedquilt-site" for path in sites.values()])


def summary(history: list[dict[str, Any]], sites: list[Path]) -> dict[str, Any]:
    """Summarise all rounds but the first, in which sites import torch and load images."""
    later = history[1:]
    seconds = [record["seconds"] for record in later]
    training = [_slowest_answer(sites, record["round"] - 1) for record in later]
    return {
        "sites": len(sites),
        "rounds": len(later),
        "median_seconds": round(statistics.median(seconds), 2),
        "seconds": " ".join(f"{each:.1f}" for each in seconds),
        "first_round_seconds": round(history[0]["seconds"], 1),
        "not_training_share": round(
            1 - statistics.median(training) / statistics.median(seconds), 2
        ),
        "bytes_down": later[0]["bytes_down"],
        "bytes_up": later[0]["bytes_up"],
    }


def _slowest_answer(sites: list[Path], round_index: int) -> float:
    """Return the seconds from request to reply at the slowest site, by the sites' audit logs."""
    spans = []
    for site in sites:
        lines = [json.loads(line) for line in (site / "audit.jsonl").open()]
        moments = {
            line["event"]: datetime.fromisoformat(line["time"])
            for line in lines
            if line["kind"] == "train" and line["round"] == round_index
        }
        spans.append((moments["sent"] - moments["received"]).total_seconds())
    return max(spans)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(options.rounds + 1, Path(folder))
    found["load_average"] = round(
        os.getloadavg()[0], 1
    )  # above 4: other processes shared the cores
    print(found)
    write_results("speed/deploy", [found])
    if found["median_seconds"] > LIMIT_SECONDS:
        raise SystemExit(f"a round takes longer than {LIMIT_SECONDS} s")


if __name__ == "__main__":
    main()
