"""One step, recorded as a CUDA graph and played again; on a CPU it is simply taken again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from fedquilt.training.method import Local

UNFIT_FOR_STEPS = ("round_index", "data", "generator", "predict")


class Unrecordable(Exception):
    """A step that would not be the same if it were played again."""


class StepLocal(Local):
    """What a client sees inside a step: nothing that changes without a tensor changing."""

    @classmethod
    def of(cls, local: Local) -> StepLocal:
        guarded = cls.__new__(cls)
        guarded.__dict__.update(local.__dict__)
        return guarded

    def __getattribute__(self, name: str) -> Any:
        if name in UNFIT_FOR_STEPS:
            raise Unrecordable(f"a hook inside a step reads local.{name}")
        return super().__getattribute__(name)


@contextmanager
def kernels_by_rule() -> Iterator[None]:
    """Within it, cuDNN takes the kernels that its rules of thumb name, instead of timing some."""
    searched = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = searched


class GraphStep:
    def __init__(self, step: Callable[[], None]) -> None:
        self.take = step  # as it is, without a recording
        self._graph: torch.cuda.CUDAGraph | None = None

    def record(self, stream: torch.cuda.Stream | None, memory: Any) -> None:
        """Record the step without taking it. Everything it reads must outlive the recording."""
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=memory, stream=stream):
                self.take()
        except torch.OutOfMemoryError:  # a RuntimeError too, but not the step's fault
            raise
        except RuntimeError as error:
            raise Unrecordable(str(error).partition("\n")[0]) from error
        self._graph = graph

    def play(self) -> None:
        if self._graph is None:
            self.take()
        else:
            self._graph.replay()
