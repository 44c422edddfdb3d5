"""One run of the study: rounds on an engine, several served models, scores of every test image."""

from __future__ import annotations

import csv
import time
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.studies.quilt.data_sets import LOADERS
from benchmarks.studies.quilt.problems import PROBLEMS, SUITED, follows_the_rounds, recipe_of
from fedquilt.core.tree import Weights
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.data.source import Splits
from fedquilt.engines.cuda_graph.engine import CudaGraphEngine
from fedquilt.engines.sequential import SequentialEngine
from fedquilt.metrics.evaluation import predict_logits, report_on
from fedquilt.recipes.recipe import Recipe
from fedquilt.runs.simulation import Simulation, simulate
from fedquilt.training.activity import RunSize
from fedquilt.training.rounds import run_rounds, start_server

AVERAGED = 0.8  # decay of the average of the global models, which is served for comparison
GLOBAL, AVERAGE = "global", "average"


@dataclass(frozen=True, kw_only=True)
class Job:
    phase: str  # tuning, screening or final
    problem: str
    row: str
    seed: int
    rounds: int
    rate: float


def run_job(
    job: Job, folder: Path, device: str, halfway: Path | None = None
) -> tuple[list[dict[str, Any]], Tensor]:
    """Return a CSV row per evaluation and served model, and the last scores, float16.

    After half of the rounds, the rows so far are written to the file ``halfway``: they are those of
    a run of half as many rounds, and are kept if this one is cut off.
    """
    began = time.perf_counter()
    problem = PROBLEMS[job.problem]
    part = "test" if job.phase == "final" else "validation"
    splits = _loaded(problem.data, folder, job.seed, part)
    recipe, simulation = _simulated(job, folder, splits)
    method, task = recipe.method, simulation.task
    on_gpu = device == "cuda"
    engine: SequentialEngine = (
        CudaGraphEngine(task, simulation.clients, slots=10)
        if on_gpu
        else SequentialEngine(task, simulation.clients)
    )
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    server = start_server(method, task, engine)
    rows: list[dict[str, Any]] = []
    sent = 0
    average: Weights = {}
    trained = 0.0
    scores = torch.zeros(0)

    def facts() -> dict[str, Any]:
        return {
            "trust": _numbers(server["trust"].tolist()) if "trust" in server else "",
            "bytes_up": sent,
            "seconds_in_rounds": round(trained, 1),
            "seconds": round(time.perf_counter() - began, 1),
            "memory_MiB": torch.cuda.max_memory_allocated() // 2**20 if on_gpu else "",
            "capture_failure": getattr(engine, "capture_failure", None) or "",
        }

    for round_ in run_rounds(method, task, engine, server):
        server, trained, sent = round_.server, trained + round_.seconds, sent + round_.bytes_up
        weights = method.global_weights(server)
        assert weights is not None
        average = _averaged(average, weights)
        done = round_.index + 1
        if done % problem.every and done != job.rounds:
            continue
        for served, model in ((GLOBAL, weights), (AVERAGE, average)):
            if served == AVERAGE and done not in (job.rounds, job.rounds // 2):
                continue
            logits = _logits(engine, model, splits.test, simulation)
            measured = _metrics(logits, splits.test, recipe)
            if served == GLOBAL:
                scores = logits
            rows.append({**vars(job), "round": done, "served": served, **measured})
        if halfway and 2 * done == job.rounds and not follows_the_rounds(job.row):
            _write(halfway, [row | facts() | {"rounds": done} for row in rows])
    return [row | facts() for row in rows], scores.to(torch.float16)


@lru_cache(maxsize=8)  # every seed of a problem
def _loaded(data: str, folder: Path, seed: int, part: str) -> Splits:
    return LOADERS[data](folder, seed, part)


def _simulated(job: Job, folder: Path, splits: Splits) -> tuple[Recipe, Simulation]:
    problem = PROBLEMS[job.problem]
    recipe = recipe_of(problem, job.row, job.rate, job.seed, job.rounds, folder)
    simulation = simulate(recipe, folder, splits)
    name = recipe.to_dict()["method"]["name"]
    if name in SUITED and "CR" not in job.row:
        size = RunSize.of(simulation.clients.values(), job.rounds)
        method = replace(recipe.method, **recipe.method.suited_to(size))
        recipe = replace(recipe, method=method)
        simulation = simulate(recipe, folder, splits)
    return recipe, simulation


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    part = path.with_suffix(".part")  # the process may be ended at any time
    with part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*rows[0]], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    part.replace(path)


def _averaged(average: Weights, weights: Weights) -> Weights:
    """An exponential average of the rounds' models; integer counters are taken as they are."""
    if not average:
        return dict(weights)
    return {
        name: average[name].lerp(leaf, 1 - AVERAGED) if leaf.is_floating_point() else leaf
        for name, leaf in weights.items()
    }


def _logits(
    engine: SequentialEngine, weights: Weights, test: MultiLabelDataset, simulation: Simulation
) -> Tensor:
    workspace = engine.workspace
    return predict_logits(
        workspace.forward,
        weights,
        test.images,
        simulation.task,
        batch_size=512,
        device=workspace.device,
    ).cpu()


def _metrics(logits: Tensor, test: MultiLabelDataset, recipe: Recipe) -> dict[str, Any]:
    report = report_on(torch.sigmoid(logits), test, recipe.evaluation).to_dict()
    averages, classes = report["averages"], report["per_class"]
    return {
        **{name: _percent(averages[name]) for name in ("macro_auc", "map", "bacc")},
        "auc_per_class": _numbers(classes["auc"]),
        "ap_per_class": _numbers(classes["ap"]),
    }


def _percent(value: float | None) -> float | str:
    return "" if value is None or np.isnan(value) else round(100 * value, 3)


def _numbers(values: list[float | None]) -> str:
    return " ".join("nan" if value is None else f"{value:.4f}" for value in values)
