"""How much longer does a step of private training take than an ordinary one?

    python -m benchmarks.speed.private_step

FedAvg-PL on one client with digit mosaics, one thread, processor seconds: another process on the
machine does not count. The network, the images of a batch and everything but the privacy are the
same; the median of the rounds after the first.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.harness.result_csv import write_results
from fedquilt.recipes.recipe import Recipe, recipe_from
from fedquilt.runs.simulation import Simulation, simulate
from fedquilt.training.client import Workspace, run_client
from fedquilt.training.method import Method
from fedquilt.training.privacy_settings import NO_NOISE

IMAGES, STEPS, ROUNDS = 256, 4, 5
NETWORKS: tuple[tuple[dict[str, Any], int], ...] = (
    ({"backbone": "small-cnn"}, 64),
    ({"backbone": "small-resnet", "norm": "group"}, 32),
    ({"backbone": "resnet18", "norm": "group"}, 8),
)


def recipe_of(model: dict[str, Any], batch: int) -> Recipe:
    training = {"batch_size": batch, "steps": STEPS}
    method = {"name": "fedavg-pl", "positive_weight": "none", "weighting": "uniform"}
    return recipe_from(
        {
            "data": {"name": "digits-mosaic", "train": IMAGES, "test": 8},
            "partition": {"name": "iid", "clients": 1},
            "annotation": {"name": "full"},
            "views": {"weak": "plain"},
            "model": model,
            "method": method | {"training": training},
            "rounds": ROUNDS,
            "privacy": {"epsilon": 8.0, "delta": 1e-4, "training": True},
        }
    )


def seconds_of_a_step(simulation: Simulation, method: Method, *, is_private: bool) -> float:
    task = simulation.task if is_private else replace(simulation.task, privacy=NO_NOISE)
    (data,) = simulation.clients.values()
    workspace = Workspace.of(task, torch.device("cpu"))
    received = {"weights": workspace.trained.read()}
    taken = []
    for index in range(ROUNDS):
        began = time.process_time()
        run_client(method, task, workspace, data, received, {}, index)
        taken.append((time.process_time() - began) / STEPS)
    return median(taken[1:])


def measure(model: dict[str, Any], batch: int, cache: Path) -> dict[str, Any]:
    recipe = recipe_of(model, batch)
    simulation, method = simulate(recipe, cache), recipe.method
    plain = seconds_of_a_step(simulation, method, is_private=False)
    private = seconds_of_a_step(simulation, method, is_private=True)
    return {
        "network": " ".join(model.values()),
        "numbers": sum(each.numel() for each in simulation.task.build_network().parameters()),
        "image": "x".join(map(str, simulation.task.image_shape)),
        "batch": batch,
        "plain_seconds": round(plain, 4),
        "private_seconds": round(private, 4),
        "times": round(private / plain, 1),
    }


def main() -> None:
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    torch.set_num_threads(1)
    rows = []
    with TemporaryDirectory() as cache:
        for model, batch in NETWORKS:
            rows.append(measure(model, batch, Path(cache)))
            print(rows[-1], flush=True)
    write_results("speed/private_step", rows)


if __name__ == "__main__":
    main()
