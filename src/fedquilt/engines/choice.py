"""Which engine plays the clients on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import torch

from fedquilt.audit import PseudoLabelAudit
from fedquilt.client_states import ClientStates
from fedquilt.data.client_data import ClientData
from fedquilt.engines.local import LocalEngine
from fedquilt.engines.recorded.engine import RecordedEngine
from fedquilt.engines.threaded import ThreadedEngine
from fedquilt.errors import UserError
from fedquilt.privacy.transform import PayloadTransform
from fedquilt.task import Task

EngineName: TypeAlias = Literal["auto", "local", "threaded", "recorded"]


def build_engine(
    name: EngineName,
    task: Task,
    clients: Mapping[str, ClientData],
    *,
    states: ClientStates,
    audit: PseudoLabelAudit,
    device: str,
    transforms: Sequence[PayloadTransform] = (),
) -> LocalEngine:
    """``auto`` plays clients side by side: on a GPU, or on the cores that torch may use."""
    if name == "auto":
        on_cores: EngineName = "threaded" if torch.get_num_threads() > 1 else "local"
        name = "recorded" if device.startswith("cuda") else on_cores
    if name == "threaded" and device != "cpu":
        raise UserError(f"--engine threaded is for --device cpu, found {device!r}; use recorded")
    kind = {"local": LocalEngine, "threaded": ThreadedEngine, "recorded": RecordedEngine}[name]
    return kind(task, clients, states=states, audit=audit, device=device, transforms=transforms)
