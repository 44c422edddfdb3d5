"""Counts the operations that torch is asked for."""

from __future__ import annotations

from collections import Counter

from torch.utils._python_dispatch import TorchDispatchMode


class TorchCalls(TorchDispatchMode):
    """While it is in force, ``count`` grows by every operation, under torch's own name for it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count: Counter[str] = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.count[str(function)] += 1
        return function(*args, **(kwargs or {}))
