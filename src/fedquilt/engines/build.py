"""build_engine(): the engine that plays the clients on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fedquilt.audit import PseudoLabelAudit
from fedquilt.client_states import ClientStates
from fedquilt.data.client_data import ClientData
from fedquilt.engines.engine_choice import EngineChoice, EngineName
from fedquilt.engines.local import LocalEngine
from fedquilt.engines.recorded.engine import RecordedEngine
from fedquilt.engines.threaded import ThreadedEngine
from fedquilt.errors import UserError
from fedquilt.privacy.transform import PayloadTransform
from fedquilt.task import Task


def build_engine(
    choice: EngineChoice,
    task: Task,
    clients: Mapping[str, ClientData],
    *,
    states: ClientStates,
    audit: PseudoLabelAudit,
    device: str,
    transforms: Sequence[PayloadTransform] = (),
) -> LocalEngine:
    """``auto`` plays clients side by side: on a GPU, or on the cores that torch may use."""
    name = choice.name
    if name == "auto":
        on_cores: EngineName = "threaded" if torch.get_num_threads() > 1 else "local"
        name = "recorded" if device.startswith("cuda") else on_cores
    if name == "threaded" and device != "cpu":
        raise UserError(f"--engine threaded is for --device cpu, found {device!r}; use recorded")
    given: dict[str, Any] = {
        "states": states,
        "audit": audit,
        "device": device,
        "transforms": transforms,
    }
    if name == "recorded":
        return RecordedEngine(task, clients, **given, **choice.for_the_recorded)
    choice.refuse_more_than(name)
    return (ThreadedEngine if name == "threaded" else LocalEngine)(task, clients, **given)
