"""Scores of a run's models on its validation images, as each client has annotated them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from fedquilt.core.tree import Weights
from fedquilt.engines.sequential import SequentialEngine
from fedquilt.metrics.evaluation import predict_logits
from fedquilt.runs.scores import Scores
from fedquilt.runs.simulation import Simulation

BATCH = 256


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
