"""Rules that say how a class's threshold is chosen, and the text that names each of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from fedquilt.core.errors import UserError

Kind = Literal["fixed", "given", "youden", "f1", "sensitivity", "specificity", "cost"]
EXAMPLES = (
    "fixed, youden, f1, sensitivity>=0.95, specificity>=0.9, cost 5:1 (a missed positive to a "
    "false alarm), cost 5:1 at 0.05 (the share of positives where it is used), "
    "cost 5:1 calibrated, or a probability such as 0.2"
)
_TARGET = re.compile(r"(sensitivity|specificity)\s*>=\s*(\S+)")
_COST = re.compile(r"cost\s+([^\s:]+)\s*:\s*(\S+?)(?:\s+at\s+(\S+)|\s+(calibrated))?")


@dataclass(frozen=True, kw_only=True)
class ThresholdRule:
    """How to choose a threshold.

    ``fixed`` keeps the recipe's one threshold; ``given`` is a probability set by hand.
    """

    kind: Kind
    target: float = 0.0  # of a sensitivity or specificity; or the probability that was given
    cost_of_miss: float = 1.0
    cost_of_alarm: float = 1.0
    prevalence: float | None = None  # for costs; None: the share among the known entries
    calibrated: bool = False  # costs on calibrated probabilities need no fit

    @property
    def is_fitted(self) -> bool:
        return self.kind not in ("fixed", "given")

    @property
    def text(self) -> str:
        if self.kind == "given":
            return f"{self.target:g}"
        if self.kind in ("sensitivity", "specificity"):
            return f"{self.kind}>={self.target:g}"
        if self.kind == "cost":
            at = "" if self.prevalence is None else f" at {self.prevalence:g}"
            end = " calibrated" if self.calibrated else at
            return f"cost {self.cost_of_miss:g}:{self.cost_of_alarm:g}{end}"
        return self.kind


def read_rule(text: str | float, where: str = "threshold rule") -> ThresholdRule:
    """Read a rule such as ``sensitivity>=0.95``; a number is a probability given by hand."""
    words = str(text).strip()
    if words in ("fixed", "youden", "f1"):
        return ThresholdRule(kind=words)  # type: ignore[arg-type]
    if match := _TARGET.fullmatch(words):
        target = _number(match[2], words, where)
        if not 0 < target <= 1:
            raise UserError(
                f"{where}: {words!r} asks for {target:g}; give a share above 0, up to 1"
            )
        return ThresholdRule(kind=match[1], target=target)  # type: ignore[arg-type]
    if match := _COST.fullmatch(words):
        return _cost_rule(match, words, where)
    try:
        probability = float(words)
    except ValueError:
        raise UserError(f"{where}: {words!r} is no rule; give one like {EXAMPLES}") from None
    if not 0 < probability < 1:
        raise UserError(f"{where}: a threshold must be between 0 and 1, found {words}")
    return ThresholdRule(kind="given", target=probability)


def _cost_rule(match: re.Match[str], words: str, where: str) -> ThresholdRule:
    miss, alarm = _number(match[1], words, where), _number(match[2], words, where)
    if not (0 < miss < float("inf") and 0 < alarm < float("inf")):
        raise UserError(f"{where}: the costs in {words!r} must be positive numbers")
    prevalence = None if match[3] is None else _number(match[3], words, where)
    if prevalence is not None and not 0 < prevalence < 1:
        raise UserError(f"{where}: the share of positives in {words!r} must be between 0 and 1")
    return ThresholdRule(
        kind="cost",
        cost_of_miss=miss,
        cost_of_alarm=alarm,
        prevalence=prevalence,
        calibrated=match[4] is not None,
    )


def _number(text: str, words: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UserError(f"{where}: {text!r} in {words!r} is not a number") from None
