"""Channel: how the server's requests reach the sites, whatever the network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class WaitLimits:
    """How long a channel waits for replies."""

    seconds: float  # for all replies
    late_seconds: float  # for the remaining replies, once is_enough() holds
    is_enough: Callable[[], bool]


class Channel(Protocol):
    """Sends requests to sites and collects their replies."""

    def ask(
        self,
        requests: Mapping[str, bytes],
        on_reply: Callable[[str, bytes], None],
        limits: WaitLimits,
    ) -> Mapping[str, str]:
        """Send every site its request and pass each reply to ``on_reply(site, reply)``.

        Calls of ``on_reply`` never overlap. Return the reason for each site that did not reply.
        """
