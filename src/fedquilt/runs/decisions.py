"""When a class counts as present: its threshold, and the classes that a model must not judge."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from fedquilt.metrics.calibration import Calibrator, calibrator_from
from fedquilt.metrics.counts import predict
from fedquilt.metrics.evaluation import is_fitted
from fedquilt.runs.fitted_decisions import Given, stored_decisions, with_given
from fedquilt.runs.model_json import Card

Decision: TypeAlias = Literal["present", "absent", "not judged"]
NOT_ANNOTATED = "nobody annotated this class"


@dataclass(frozen=True)
class ClassRule:
    """How one class is decided; without a probability it is not judged."""

    probability: float | None  # the lowest of a present class
    logit: float | None = None  # of a fitted threshold, which is exact
    calibrator: Calibrator | None = None  # from logit to calibrated probability
    why: str | None = None  # it is not judged, or its threshold is not fitted


@dataclass(frozen=True, eq=False)
class Decisions:
    """The rules of a model's classes."""

    rules: tuple[ClassRule, ...]
    strict: bool  # True: present only above the threshold, not at it

    def present(self, logits: Tensor, probabilities: Tensor) -> Tensor:
        """(N, C) bool; false where a class is not judged."""
        fixed = [0.0 if rule.probability is None else rule.probability for rule in self.rules]
        called = predict(probabilities, fixed, self.strict)
        for place, rule in enumerate(self.rules):
            if rule.probability is None:
                called[:, place] = False
            elif rule.logit is not None:  # fitted: at or above the threshold
                called[:, place] = logits[:, place].to(torch.float64) >= rule.logit
        return called

    def calibrated(self, logits: Tensor) -> list[list[float | None]]:
        """Return the calibrated probabilities (N, C); None where a class is not calibrated."""
        columns = [_calibrated(rule, column) for rule, column in zip(self.rules, logits.T)]
        return [list(row) for row in zip(*columns)]

    def words(self, present: Tensor) -> list[list[Decision]]:
        """Return the decisions (N, C) in words."""
        return [
            [_word(rule, is_present) for rule, is_present in zip(self.rules, row)]
            for row in present.tolist()
        ]


def decisions(card: Card, model: str, threshold: Given = None) -> Decisions:
    """Return the rules of a model.

    Args:
        card: what ``model.json`` holds.
        model: its name: a client, or the global model.
        threshold: a probability for all classes or by class, in place of stored thresholds.
    """
    entries = with_given(stored_decisions(card, model), threshold, card["classes"])
    fitted = entries.get("thresholds", {}).get("classes", {})
    calibration = entries.get("calibration", {}).get("classes", {})
    annotated = set(card["annotated"].get(model, card["classes"]))
    rules = []
    for name in card["classes"]:
        if name not in annotated:
            rules.append(ClassRule(None, why=NOT_ANNOTATED))
        else:
            rule = _rule(fitted.get(name), card["threshold"])
            rules.append(replace(rule, calibrator=calibrator_from(calibration.get(name, {}))))
    return Decisions(tuple(rules), card["strict"])


def _rule(stored: dict[str, Any] | None, fixed: float) -> ClassRule:
    if stored is None:
        return ClassRule(fixed)
    why = stored.get("fallback")
    if stored.get("probability") is None:
        return ClassRule(None, why=why or "no threshold was fitted")
    exact = stored["logit"] if is_fitted(stored) else None
    return ClassRule(stored["probability"], exact, why=why)


def _calibrated(rule: ClassRule, logits: Tensor) -> list[float | None]:
    if rule.calibrator is None:
        return [None] * len(logits)
    return [*rule.calibrator.probabilities(logits.double().numpy()).tolist()]


def _word(rule: ClassRule, is_present: bool) -> Decision:
    if rule.probability is None:
        return "not judged"
    return "present" if is_present else "absent"
