"""Channel: how requests reach sites; what is said over it is the same on every network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Patience:
    """How long a channel waits for replies."""

    seconds: float  # for all of them
    late_seconds: float  # for the others, once enough have come
    is_enough: Callable[[], bool]


class Channel(Protocol):
    def ask(
        self,
        requests: Mapping[str, bytes],
        take: Callable[[str, bytes], None],
        patience: Patience,
    ) -> Mapping[str, str]:
        """Give every site its request and every reply to ``take``, one at a time, as it comes.

        Returns, for sites without a reply, why there is none.
        """
