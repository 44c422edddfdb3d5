"""Rules: how long is waited, for whom, and what is the most that a message may hold."""

from __future__ import annotations

from dataclasses import dataclass, fields

from fedquilt.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Rules:
    """All waits are bounded; every default suits hospitals rather than tests."""

    quorum: int = 2  # sites without which no round counts
    start_seconds: float = 600.0  # wait for sites before a study starts or goes on
    round_seconds: float = 3600.0  # wait for the updates of a round
    late_seconds: float = 60.0  # wait for the others once enough have answered
    lost_seconds: float = 30.0  # silence after which a site counts as gone
    server_seconds: float = 120.0  # wait for a server that does not answer the coordinator
    max_message_bytes: int = 2**31  # of one update

    def __post_init__(self) -> None:
        for each in fields(self):
            if getattr(self, each.name) <= 0:
                raise UserError(
                    f"study.rules.{each.name} is {getattr(self, each.name)}; it must be positive"
                )
