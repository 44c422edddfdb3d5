"""How many rounds a run takes to a level of a metric: FLAG's measure of speed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def rounds_to(history: Iterable[Mapping[str, Any]], metric: str, level: float) -> int | None:
    """Return the first evaluated round, counted from 1, that reaches ``level``; None if none does.

    A round that was not evaluated cannot count, so the answer is as fine as ``evaluation.every``.
    """
    for number, record in enumerate(history, start=1):
        value = record.get("metrics", {}).get(metric)
        if value is not None and value >= level:
            return number
    return None
