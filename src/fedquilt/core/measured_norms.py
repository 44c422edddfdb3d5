"""MeasuredNorms: the norms of a round's updates, kept in order as they arrive."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from torch import Tensor

Number = TypeVar("Number", int, float)


class MeasuredNorms:
    """What judging an update reads does not take longer with more clients in the round.

    Args:
        steps: a client's steps in the round.
    """

    def __init__(self, steps: Callable[[str], int]) -> None:
        self._client_steps = steps
        self.by_client: dict[str, Mapping[str, Tensor]] = {}
        self.numbers: dict[str, dict[str, float]] = {}  # those of one number
        self._sent: dict[str, list[float]] = {}  # by part, those above 0 in order
        self._steps: list[int] = []  # in order

    def add(self, client: str, norms: Mapping[str, Tensor]) -> None:
        self.by_client[client] = norms
        insort(self._steps, self._client_steps(client))
        numbers = {part: float(norm) for part, norm in norms.items() if norm.ndim == 0}
        self.numbers[client] = numbers
        for part, number in numbers.items():
            if number > 0:
                insort(self._sent.setdefault(part, []), number)

    @property
    def median_steps(self) -> int:
        return lower_median(self._steps)

    def sent(self, part: str) -> list[float]:
        """Return the norms above 0 of a part, in order."""
        return self._sent.get(part, [])


def lower_median(ordered: Sequence[Number]) -> Number:
    return ordered[(len(ordered) - 1) // 2]
