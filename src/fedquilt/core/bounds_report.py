"""What the bounds of a round did, for the history and for the next round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedquilt.core.norms import EarlierNorms


@dataclass(frozen=True)
class BoundsReport:
    """What the bounds of a round did."""

    norms: EarlierNorms = EarlierNorms()  # for the next round
    refused: Mapping[str, str] = field(default_factory=dict)  # client -> why
    clipped: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # client -> parts
    largest: str = "no update was measured"  # which client sent the largest part, in words

    def facts(self) -> dict[str, Any]:
        """Return the report for the history of a run."""
        facts = {**self.norms.facts(), "refused": dict(self.refused)}
        facts["clipped"] = {client: list(parts) for client, parts in self.clipped.items()}
        return {name: fact for name, fact in facts.items() if fact}
