"""Validation in a simulation: metrics of a round's models, and their scores per image.

A validated round adds up the parts that the sites of a study would send.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedquilt.core.processes import own_clients
from fedquilt.core.totals import Accumulator
from fedquilt.core.tree import Weights
from fedquilt.data.client_data import ClientData
from fedquilt.engines.sequential import SequentialEngine
from fedquilt.metrics.evaluation import predict_logits
from fedquilt.privacy.site_validation import (
    expected_validation,
    validation_parts,
    validation_result,
)
from fedquilt.runs.assessment import GLOBAL
from fedquilt.runs.scores import Scores
from fedquilt.runs.simulation import Simulation

BATCH = 256


def validate(
    simulation: Simulation, engine: SequentialEngine, models: Mapping[str, Weights], min_cell: int
) -> dict[str, Any]:
    """Return what the history keeps of a validated round.

    A global model is judged by all clients together. A client's own model is judged by that client
    alone, so no floor applies; ``by_client`` holds the results, and the rest are their means.
    """
    clients = {name: data for name, data in sorted(simulation.validation.items()) if len(data)}
    if GLOBAL in models:
        return _judged_by(simulation, engine, models[GLOBAL], clients, min_cell)
    own = {
        name: _judged_by(simulation, engine, models[name], {name: data}, 0)
        for name, data in clients.items()
        if name in models
    }
    return {
        metric: _mean(found[metric] for found in own.values()) for metric in ("site_auc", "loss")
    } | {
        "per_class_auc": {
            name: _mean(found["per_class_auc"][name] for found in own.values())
            for name in simulation.task.classes
        },
        "by_client": {
            name: {metric: found[metric] for metric in ("site_auc", "loss")}
            for name, found in own.items()
        },
    }


def _judged_by(
    simulation: Simulation,
    engine: SequentialEngine,
    weights: Weights,
    clients: Mapping[str, ClientData],
    min_cell: int,
) -> dict[str, Any]:
    classes = simulation.task.classes
    accumulator = Accumulator(
        expected_validation(len(classes)), len(clients), processes=engine.processes
    )
    for name in own_clients(engine.processes, clients, simulation.clients):
        data = clients[name]
        logits = validation_logits(simulation, engine, weights, data)
        accumulator.add(name, validation_parts(logits, data, min_cell))
    return validation_result(accumulator.totals(), classes)


def validation_logits(
    simulation: Simulation, engine: SequentialEngine, weights: Weights, data: ClientData
) -> Tensor:
    """Return the logits (n, C) of one client's validation images."""
    workspace = engine.workspace
    return predict_logits(
        workspace.forward,
        weights,
        data.images[data.indices],
        simulation.task,
        batch_size=BATCH,
        device=workspace.device,
    )


def validation_scores(
    simulation: Simulation, engine: SequentialEngine, models: Mapping[str, Weights], rounds: int
) -> Scores:
    """Return every model's logits for all clients' validation images; ``sites`` names the clients.

    An image that several clients hold is listed once for each, under its client's name.
    """
    train, workspace = simulation.splits.train, engine.workspace
    clients = [data for _, data in sorted(simulation.validation.items()) if len(data)]
    rows = torch.cat([data.indices for data in clients])
    sites = [data.name for data in clients for _ in range(len(data))]
    patients = None
    if train.groups is not None:
        names = [train.groups[row] for row in rows.tolist()]
        patients = np.unique(names, return_inverse=True)[1].astype(np.int64)
    ids = [train.ids[row] for row in rows.tolist()]
    if len(set(ids)) < len(ids):
        ids = [f"{site}/{name}" for site, name in zip(sites, ids)]
    logits = {
        name: predict_logits(
            workspace.forward,
            weights,
            train.images[rows],
            simulation.task,
            batch_size=BATCH,
            device=workspace.device,
        )
        for name, weights in models.items()
    }
    return Scores(
        part="validation",
        round=rounds,
        classes=train.classes,
        ids=tuple(ids),
        labels=torch.cat([data.labels for data in clients]).numpy(),
        known=torch.cat([data.known for data in clients]).numpy(),
        logits={name: each.cpu().numpy() for name, each in logits.items()},
        patients=patients,
        sites=tuple(sites),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    defined = [value for value in values if value is not None]
    return statistics.fmean(defined) if defined else None
