"""GraphStep: a training step captured as a CUDA graph and replayed; on a CPU it runs eagerly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from fedquilt.training.method import Local

NOT_IN_STEPS = ("round_index", "data", "generator", "predict")


class CaptureError(Exception):
    """Raised if a step cannot be captured, or if a replay would not repeat it."""


class StepLocal(Local):
    """What a hook sees inside a step: only what changes through tensors."""

    @classmethod
    def of(cls, local: Local) -> StepLocal:
        guarded = cls.__new__(cls)
        guarded.__dict__.update(local.__dict__)
        return guarded

    def __getattribute__(self, name: str) -> Any:
        if name in NOT_IN_STEPS:
            raise CaptureError(f"a hook inside a step reads local.{name}")
        return super().__getattribute__(name)


class GraphStep:
    """A step that runs eagerly until it is captured."""

    def __init__(self, step: Callable[[], None]) -> None:
        self.run_eagerly = step
        self._graph: torch.cuda.CUDAGraph | None = None

    def capture(self, stream: torch.cuda.Stream | None, memory_pool: Any) -> None:
        """Capture the step without running it. Every tensor it reads must outlive the graph."""
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=memory_pool, stream=stream):
                self.run_eagerly()
        except torch.OutOfMemoryError:  # a RuntimeError too, but not the step's fault
            raise
        except RuntimeError as error:
            raise CaptureError(str(error).partition("\n")[0]) from error
        self._graph = graph

    def replay(self) -> None:
        """Replay the graph, or run the step eagerly if there is none."""
        if self._graph is None:
            self.run_eagerly()
        else:
            self._graph.replay()


@contextmanager
def no_kernel_search() -> Iterator[None]:
    """Let cuDNN choose kernels by its heuristics instead of timing them."""
    was_on = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = was_on
