"""DecisionRules: the part of a recipe that says how scores become decisions and probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fedquilt.core.errors import UserError, nearest
from fedquilt.metrics.calibration import Method
from fedquilt.metrics.threshold_rules import ThresholdRule, read_rule

PLACE = "evaluation.decisions"


@dataclass(frozen=True, kw_only=True)
class DecisionRules:
    """How each class's threshold is chosen, and how its probabilities are calibrated.

    Both are fitted on the validation part, with the model that is served. The defaults fit nothing:
    every class is present from ``evaluation.threshold`` on.
    """

    rule: str = "fixed"  # youden, f1, sensitivity>=0.95, specificity>=0.9, cost 5:1, 0.2, fixed
    calibration: Method = "none"  # none, platt, temperature or isotonic
    by_class: Mapping[str, str | float] = field(default_factory=dict)  # rules of single classes

    def __post_init__(self) -> None:
        read_rule(self.rule, f"{PLACE}.rule")
        for name, text in self.by_class.items():
            read_rule(text, f"{PLACE}.by_class.{name}")

    @property
    def has_thresholds(self) -> bool:
        return self.rule != "fixed" or bool(self.by_class)

    @property
    def is_default(self) -> bool:
        return self.calibration == "none" and not self.has_thresholds

    @property
    def needs_validation(self) -> bool:
        rules = [self.rule, *self.by_class.values()]
        return self.calibration != "none" or any(read_rule(text).is_fitted for text in rules)

    def of_class(self, name: str) -> ThresholdRule:
        return read_rule(self.by_class.get(name, self.rule))

    def check_classes(self, classes: Sequence[str]) -> None:
        """Raise UserError if a rule is for a class that does not exist."""
        for name in self.by_class:
            if name not in classes:
                raise UserError(
                    f"{PLACE}.by_class: there is no class {name!r}{nearest(name, classes)}"
                )
