"""build_engine(): the engine for a run's options and device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fedquilt.core.aggregation_rules import PLAIN_RULES, AggregationRules
from fedquilt.core.errors import UserError
from fedquilt.data.client_data import ClientData
from fedquilt.engines.client_states import ClientStates
from fedquilt.engines.cuda_graph.engine import CudaGraphEngine
from fedquilt.engines.options import EngineName, EngineOptions
from fedquilt.engines.sequential import SequentialEngine
from fedquilt.engines.threaded import ThreadedEngine
from fedquilt.metrics.pseudo_labels import PseudoLabelAudit
from fedquilt.privacy.transform import PayloadTransform
from fedquilt.training.activity import ActivityTally
from fedquilt.training.privacy_settings import NO_NOISE, Privacy
from fedquilt.training.task import Task


def check_engine(
    options: EngineOptions, device: str, precision: str, privacy: Privacy = NO_NOISE
) -> None:
    """Raise UserError if the options contradict each other; called before the run folder exists."""
    name = _engine_name(options, device)
    if name == "threaded" and device != "cpu":
        raise UserError(
            f"--engine threaded needs --device cpu, found {device!r}; use --engine cuda-graph"
        )
    if name != "cuda-graph":
        options.refuse_cuda_graph_options(name)
    if name == "cuda-graph" and privacy.training:
        raise UserError(
            "privacy.training draws batches of varying size, which no CUDA graph can replay; use "
            "--engine sequential"
        )
    if options.exact and precision != "float32":
        raise UserError(
            f"exact needs float32, and method.training.precision is {precision!r}; "
            "leave out one of them"
        )


def build_engine(  # noqa: PLR0913 (options by name)
    options: EngineOptions,
    task: Task,
    clients: Mapping[str, ClientData],
    *,
    states: ClientStates,
    audit: PseudoLabelAudit,
    tally: ActivityTally,
    device: str,
    transforms: Sequence[PayloadTransform] = (),
    rules: AggregationRules = PLAIN_RULES,
) -> SequentialEngine:
    name = _engine_name(options, device)
    given: dict[str, Any] = {
        "states": states,
        "audit": audit,
        "tally": tally,
        "device": device,
        "transforms": transforms,
        "rules": rules,
    }
    if name == "cuda-graph":
        return CudaGraphEngine(task, clients, **given, **options.cuda_graph_options)
    return (ThreadedEngine if name == "threaded" else SequentialEngine)(task, clients, **given)


def _engine_name(options: EngineOptions, device: str) -> EngineName:
    """Resolve ``auto``: the concurrent engine for the device, if it has more than one core."""
    if options.name != "auto":
        return options.name
    if device.startswith("cuda"):
        return "cuda-graph"
    return "threaded" if torch.get_num_threads() > 1 else "sequential"
