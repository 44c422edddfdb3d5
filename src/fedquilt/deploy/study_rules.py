"""Rules of a study's traffic, which may change without new kits."""

from __future__ import annotations

from dataclasses import dataclass, fields

from fedquilt.core.errors import UserError

MIN_KEPT = 4


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Quorum, time limits and the size limit of messages; the defaults suit hospitals."""

    quorum: int = 2  # the fewest sites whose updates make a round
    start_seconds: float = 600.0  # wait for sites before a study is started or resumed
    round_seconds: float = 3600.0  # wait for the updates of a round
    late_seconds: float = 60.0  # wait for the remaining sites once there is a quorum
    lost_seconds: float = 30.0  # without a heartbeat, a site counts as disconnected
    server_seconds: float = 120.0  # wait for a server that does not answer the coordinator
    max_message_bytes: int = 2**31  # of one update; less if the study's network needs less
    max_records: int = 10**6  # that a site sends one by one, such as FedALC's hashes of images
    kept_rounds: int = 10  # saved rounds, at the server and at sites, that a study can go back to

    def __post_init__(self) -> None:
        for each in fields(self):
            if getattr(self, each.name) <= 0:
                raise UserError(
                    f"study.rules.{each.name} is {getattr(self, each.name)}; it must be positive"
                )
        if self.kept_rounds < MIN_KEPT:
            raise UserError(
                f"study.rules.kept_rounds is {self.kept_rounds}; expected at least {MIN_KEPT}: a "
                "server that was killed may fall back by two rounds"
            )
