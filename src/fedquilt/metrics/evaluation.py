"""evaluate(): a model's report on a data set; unannotated entries are skipped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.settings import added
from fedquilt.core.tree import Weights, moved
from fedquilt.data.augmentation.views import normalise
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.metrics import Report, score
from fedquilt.metrics.counts import Threshold, predict
from fedquilt.metrics.decision_rules import DecisionRules
from fedquilt.models.network import Output
from fedquilt.training.task import Task


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """When and how a run is evaluated on the test images."""

    every: int = 1  # rounds between evaluations; the last round is always evaluated
    threshold: float = 0.5
    strict: bool = False  # True: positive only above the threshold, not at it
    batch_size: int = 256
    exclusive: bool = added(False)  # predict only the most probable class, whatever the threshold
    decisions: DecisionRules = added(DecisionRules())  # thresholds and calibration of each class

    @property
    def rule(self) -> Threshold:
        """How classes are predicted, as :func:`fedquilt.metrics.score` takes it."""
        return "largest" if self.exclusive else self.threshold

    def __post_init__(self) -> None:
        for name in ("every", "batch_size"):
            if getattr(self, name) < 1:
                raise UserError(
                    f"evaluation.{name} must be at least 1, found {getattr(self, name)}"
                )
        if self.exclusive and self.decisions.has_thresholds:
            raise UserError(
                "evaluation.exclusive predicts the most probable class, whatever the thresholds; "
                "leave out evaluation.decisions.rule and by_class, or exclusive"
            )
        if not 0 <= self.threshold <= 1:
            raise UserError(f"evaluation.threshold must be in 0..1, found {self.threshold}")


def predict_logits(
    forward: Callable[[Weights, Tensor], Output],
    weights: Weights,
    images: Tensor,
    task: Task,
    *,
    batch_size: int,
    device: torch.device,
) -> Tensor:
    """Return float32 logits (N, C) for uint8 images on ``device``, computed in batches."""
    preprocessing, weights = task.preprocessing, moved(weights, device)
    batches = [
        forward(weights, normalise(pixels.to(device), preprocessing.mean, preprocessing.std)).logits
        for pixels in images.split(batch_size)
    ]
    return torch.cat(batches).float()


def predict_probabilities(
    forward: Callable[[Weights, Tensor], Output],
    weights: Weights,
    images: Tensor,
    task: Task,
    *,
    batch_size: int,
    device: torch.device,
) -> Tensor:
    """Return probabilities (N, C) for uint8 images, computed in batches."""
    logits = predict_logits(forward, weights, images, task, batch_size=batch_size, device=device)
    return torch.sigmoid(logits).cpu()


def evaluate(
    forward: Callable[[Weights, Tensor], Output],
    weights: Weights,
    dataset: MultiLabelDataset,
    task: Task,
    settings: Evaluation,
    device: torch.device,
) -> Report:
    probabilities = predict_probabilities(
        forward, weights, dataset.images, task, batch_size=settings.batch_size, device=device
    )
    return report_on(probabilities, dataset, settings)


def report_on(
    probabilities: Tensor,
    dataset: MultiLabelDataset,
    settings: Evaluation,
    predicted: Tensor | None = None,
) -> Report:
    """Report on (N, C) probabilities; ``predicted`` are the decisions, if not by one threshold."""
    return score(
        probabilities,
        dataset.labels,
        dataset.known,
        dataset.classes,
        threshold=settings.rule,
        strict=settings.strict,
        predicted=predicted,
    )


def called_present(
    logits: Tensor, settings: Evaluation, classes: Sequence[str], thresholds: Mapping[str, Any]
) -> Tensor:
    """(N, C) bool: each class by its stored threshold, or by the recipe's one for all.

    A fitted threshold is compared with the logit, which is exact, and reached by an equal one.
    """
    probabilities = torch.sigmoid(logits)
    called = predict(probabilities, settings.rule, settings.strict)
    limits = [_limit(thresholds.get(name), settings.threshold) for name in classes]
    by_limit = predict(probabilities, limits, settings.strict)
    for column, name in enumerate(classes):
        if is_fitted(thresholds.get(name)):
            called[:, column] = logits[:, column].double() >= thresholds[name]["logit"]
        elif name in thresholds:
            called[:, column] = by_limit[:, column]
    return called


def is_fitted(threshold: Mapping[str, Any] | None) -> bool:
    """Whether a class's stored threshold was fitted, not set by hand or fallen back to."""
    return threshold is not None and not {"fallback", "given"} & threshold.keys()


def _limit(threshold: Mapping[str, Any] | None, fixed: float) -> float:
    return fixed if threshold is None else float(threshold["probability"])
