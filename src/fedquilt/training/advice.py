"""Advice to the user: why a method did none of its work, and settings for data of another size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from fedquilt.training.activity import RunSize

WARM_UP_SHARE = 3 / 8  # of the rounds, at most
MANY_TAGS = 100  # of a class in a round: with as many, rounding down hardly matters


def short_warmup(warmup_rounds: int, size: RunSize) -> int:
    """Return a warm-up of at most three eighths of the rounds."""
    return min(warmup_rounds, max(1, round(WARM_UP_SHARE * size.rounds)))


def warmup_never_ended(warmup_rounds: int, size: RunSize) -> str:
    return (
        f"the warm-up of {warmup_rounds} rounds filled all {size.rounds} rounds; "
        "set method.warmup_rounds lower"
    )


def none_predicted(low: float, high: float, advice: str) -> str:
    """No prediction of a missing label was confident enough."""
    return f"no missing label was predicted below {low:g} or above {high:g}; {advice}"


def shares_for_rounds(shares: Mapping[str, float], paper: int, rounds: int) -> dict[str, float]:
    """Return shares per round that fill in over ``rounds`` what these do over the paper's."""
    faster = paper / max(rounds, 1)
    return {name: round(1 - (1 - share) ** faster, 4) for name, share in shares.items()}


def rounding_for(share: float, size: RunSize) -> dict[str, Any]:
    """Round the number of tags up where rounding it down would lose many."""
    return {"rounding": "ceil"} if min(size.gaps, default=0) * share < MANY_TAGS else {}


def rounded_down(
    share: float, rounding: Literal["floor", "ceil"], size: RunSize, settings: str
) -> str:
    """The share of a class's missing labels is less than one label; empty if it is not."""
    most = max(size.gaps)
    if rounding != "floor" or most * share >= MANY_TAGS:
        return ""
    return (
        f"{share:g} of the at most {most} images of a client that lack a label, times the "
        "class's learning degree of at most 1, is rounded down to 0; set method.rounding "
        f"to 'ceil', or {settings}"
    )
