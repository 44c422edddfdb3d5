"""build_engine(): the engine that plays the clients on this machine, if the choice is sound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fedquilt.core.errors import UserError
from fedquilt.data.client_data import ClientData
from fedquilt.engines.choice import EngineName, EngineOptions
from fedquilt.engines.client_states import ClientStates
from fedquilt.engines.cuda_graph.engine import CudaGraphEngine
from fedquilt.engines.sequential import SequentialEngine
from fedquilt.engines.threaded import ThreadedEngine
from fedquilt.metrics.pseudo_labels import PseudoLabelAudit
from fedquilt.privacy.transform import PayloadTransform
from fedquilt.training.task import Task


def check_choice(choice: EngineOptions, device: str, precision: str) -> None:
    """Refuse what cannot be, before a run has left anything behind."""
    name = _name(choice, device)
    if name == "threaded" and device != "cpu":
        raise UserError(f"--engine threaded is for --device cpu, found {device!r}; use recorded")
    if name != "cuda-graph":
        choice.refuse_more_than(name)
    if choice.exact and precision != "float32":
        raise UserError(
            f"exact means whole float32, and method.training.precision is {precision!r}; "
            "leave out one of them"
        )


def build_engine(
    choice: EngineOptions,
    task: Task,
    clients: Mapping[str, ClientData],
    *,
    states: ClientStates,
    audit: PseudoLabelAudit,
    device: str,
    transforms: Sequence[PayloadTransform] = (),
) -> SequentialEngine:
    name = _name(choice, device)
    given: dict[str, Any] = {
        "states": states,
        "audit": audit,
        "device": device,
        "transforms": transforms,
    }
    if name == "cuda-graph":
        return CudaGraphEngine(task, clients, **given, **choice.for_the_recorded)
    return (ThreadedEngine if name == "threaded" else SequentialEngine)(task, clients, **given)


def _name(choice: EngineOptions, device: str) -> EngineName:
    """``auto`` plays clients side by side: on a GPU, or on the cores that torch may use."""
    if choice.name != "auto":
        return choice.name
    if device.startswith("cuda"):
        return "cuda-graph"
    return "threaded" if torch.get_num_threads() > 1 else "sequential"
