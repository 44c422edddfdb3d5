"""EngineOptions: which engine plays the clients on this machine, and how. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, get_args

from fedquilt.core.errors import UserError, nearest

EngineName: TypeAlias = Literal["auto", "sequential", "threaded", "cuda-graph"]
NAMES: tuple[str, ...] = get_args(EngineName)
SLOTS = 16


@dataclass(frozen=True)
class EngineOptions:
    """What is learnt does not depend on it, but for the last digits.

    All but the name is for the CUDA graph engine.
    """

    name: EngineName = "auto"
    slots: int = SLOTS  # clients at a time
    channels_last: bool = True  # weights and images lie in memory as a GPU's convolutions like it
    exact: bool = False  # the reference's draws, whole float32, deterministic kernels

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise UserError(f"--engine {self.name!r} is unknown{nearest(self.name, NAMES)}")
        if self.slots < 1:
            raise UserError(f"slots must be at least 1, found {self.slots}")

    @property
    def for_the_recorded(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "name"}

    def refuse_more_than(self, name: EngineName) -> None:
        """Nothing that was asked for is passed over in silence."""
        usual = EngineOptions().for_the_recorded
        asked = [key for key, value in self.for_the_recorded.items() if value != usual[key]]
        if asked:
            raise UserError(
                f"{', '.join(asked)}: supported by the cuda-graph engine only, and this run uses "
                f"the {name} engine; add --device cuda (or --engine cuda-graph), or leave it out"
            )
