"""Advice to the user: why a method did none of its work, and settings for data of another size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from fedquilt.core.wording import counted
from fedquilt.training.activity import RunSize

WARM_UP_SHARE = 3 / 8  # of the rounds, at most
MANY_TAGS = 100  # of a class in a round: with as many, rounding down hardly matters


def short_warmup(warmup_rounds: int, size: RunSize) -> int:
    """Return a warm-up of at most three eighths of the rounds."""
    return min(warmup_rounds, max(1, round(WARM_UP_SHARE * size.rounds)))


def warmup_never_ended(warmup_rounds: int, size: RunSize) -> str:
    return (
        f"the warm-up of {counted(warmup_rounds, 'round')} filled all "
        f"{counted(size.rounds, 'round')}; set method.warmup_rounds lower"
    )


def no_confident_image(confidence: float, entropy_limit: float) -> str:
    return (
        f"no image had all its probabilities above {confidence:g} or below {1 - confidence:g} "
        f"with a summed entropy below {entropy_limit:g}; lower method.confidence or raise "
        "method.entropy_limit"
    )


def groups_of_all(group_size: int, size: RunSize) -> str:
    return (
        f"a group of {group_size} is all {len(size.images)} clients, so every group is the same; "
        "set method.group_size lower"
    )


def none_predicted(low: float, high: float, advice: str) -> str:
    """No prediction of a missing label was confident enough."""
    return f"no missing label was predicted below {low:g} or above {high:g}; {advice}"


def suited_shares(
    shares: Mapping[str, float], paper_rounds: int, warmup_rounds: int, size: RunSize
) -> dict[str, Any]:
    """Return shares per round that fill in, after the warm-up, what these do in the paper's rounds.

    With them, the number of tags is rounded up where rounding it down would lose many.
    """
    faster = paper_rounds / max(size.rounds - warmup_rounds, 1)
    suited = {name: round(1 - (1 - share) ** faster, 4) for name, share in shares.items()}
    loses_many = min(size.gaps, default=0) * min(suited.values()) < MANY_TAGS
    return {**suited, **({"rounding": "ceil"} if loses_many else {})}


def why_nothing_is_tagged(
    share: float,
    rounding: Literal["floor", "ceil"],
    decided: tuple[float, float],
    size: RunSize,
) -> str:
    """The share of a class's missing labels is less than one label, or no class was learnt."""
    most = max(size.gaps)
    if rounding == "floor" and most * share < MANY_TAGS:
        return (
            f"{share:g} of the at most {counted(most, 'image')} of a client that lack a label, "
            "times the class's learning degree of at most 1, is rounded down to 0; set "
            "method.rounding to 'ceil', or raise method.negative_share and method.positive_share"
        )
    advice = "train for more rounds, or set method.adaptive_threshold to false"
    return f"no class was learnt: {none_predicted(*decided, advice)}"
