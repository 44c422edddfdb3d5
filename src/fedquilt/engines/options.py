"""EngineOptions: which engine runs the clients on this machine, and its options. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, get_args

from fedquilt.core.errors import UserError, nearest

EngineName: TypeAlias = Literal["auto", "sequential", "threaded", "cuda-graph"]
NAMES: tuple[str, ...] = get_args(EngineName)
SLOTS = 16


@dataclass(frozen=True)
class EngineOptions:
    """All engines train the same model, up to rounding.

    Every option except the name is for the CUDA graph engine.
    """

    name: EngineName = "auto"
    slots: int = SLOTS  # clients trained concurrently
    channels_last: bool = True  # memory format of weights and images; faster convolutions on a GPU
    exact: bool = False  # the sequential engine's random draws, float32, deterministic kernels

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise UserError(f"--engine {self.name!r} is unknown{nearest(self.name, NAMES)}")
        if self.slots < 1:
            raise UserError(f"slots must be at least 1, found {self.slots}")

    @property
    def cuda_graph_options(self) -> dict[str, Any]:
        """Return every option except the name."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "name"}

    def refuse_cuda_graph_options(self, name: EngineName) -> None:
        """Raise UserError if an option is set that engine ``name`` would ignore."""
        defaults = EngineOptions().cuda_graph_options
        given = [key for key, value in self.cuda_graph_options.items() if value != defaults[key]]
        if given:
            raise UserError(
                f"{', '.join(given)}: supported by the cuda-graph engine only, and this run uses "
                f"the {name} engine; add --device cuda (or --engine cuda-graph), or leave it out"
            )
