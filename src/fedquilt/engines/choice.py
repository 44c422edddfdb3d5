"""Which engine plays the clients on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from fedquilt.audit import PseudoLabelAudit
from fedquilt.client_states import ClientStates
from fedquilt.data.client_data import ClientData
from fedquilt.engines.local import LocalEngine
from fedquilt.engines.recorded.engine import RecordedEngine
from fedquilt.privacy.transform import PayloadTransform
from fedquilt.task import Task

EngineName: TypeAlias = Literal["auto", "local", "recorded"]


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
    """``auto`` plays clients side by side on a GPU, and one after another on a CPU."""
    is_recorded = name == "recorded" or (name == "auto" and device.startswith("cuda"))
    kind = RecordedEngine if is_recorded else LocalEngine
    return kind(task, clients, states=states, audit=audit, device=device, transforms=transforms)
