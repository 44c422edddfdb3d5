"""ExchangeReport: facts about one exchange, for the history and the status."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class ExchangeReport:
    """Who answered, who did not and why, and what went over the network."""

    answered: tuple[str, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)  # site -> why it was not counted
    bytes_down: int = 0
    bytes_up: int = 0
    seconds: float = 0.0
    attempt: int | None = None  # of a secure sum
