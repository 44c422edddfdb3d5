"""score() and Report: all metrics of a model, per class and averaged; means over reports."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import compress
from math import isnan, nan
from typing import Any

import torch
from torch import Tensor

from fedquilt.core.errors import UserError, nearest
from fedquilt.metrics.averaging import (
    AVERAGED_METRIC,
    Undefined,
    ZeroDivision,
    check_policies,
    class_averages,
    defined_only,
    or_else,
    substitute_for,
)
from fedquilt.metrics.counts import (
    Counts,
    Threshold,
    WholeImages,
    count_predictions,
    decide_by,
    joined,
)
from fedquilt.metrics.entries import check_shapes, entries_by_classes
from fedquilt.metrics.ranking import RankingMetrics, rank_classes, rank_together

SELECTED_AVERAGES = ("macro_auc", "map", "bacc", "macro_f1")
MEMORY_MB = 256
ENTRY_BYTES = 40  # of memory while an entry is scored, by class
POOLED_BYTES = 16  # and while it is ranked among all; larger ranges are fewer passes
ROUNDING = 0.01  # averaged bfloat16 probabilities may exceed [0, 1] by this much


@dataclass(frozen=True, kw_only=True)
class Report:
    """The metrics of one model on one test set.

    ``per_class`` holds NaN where a metric is undefined; the policies apply to ``averages`` only.
    ``map`` is also called C-AP, ``overall_ap`` O-AP or micro-AP, ``overall_f1`` O-F1 or micro-F1.
    ``class_f1`` (CF1) is the harmonic mean of ``class_precision`` and ``class_recall``, whereas
    ``macro_f1`` is the mean of the classes' F1.
    """

    classes: tuple[str, ...]
    per_class: dict[str, tuple[float, ...]]  # metric -> a value per class
    averages: dict[str, float]
    defined: dict[str, int]  # class average -> number of classes where its metric is defined
    zero_division: ZeroDivision = 0.0  # the value of an undefined precision, recall or F1
    undefined: Undefined = "skip"  # policy for an undefined AUC, AP or BACC

    def over_classes(self, selected: Sequence[bool]) -> dict[str, float]:
        """Return the main class averages over the selected classes, with this report's policies."""
        if len(selected) != len(self.classes):
            raise UserError(
                f"found {len(selected)} selections for {len(self.classes)} classes; "
                "give True or False for each class"
            )
        kept = {name: tuple(compress(values, selected)) for name, values in self.per_class.items()}
        averages = class_averages(kept, self.zero_division, self.undefined)
        return {name: averages[name] for name in SELECTED_AVERAGES}

    @property
    def averaged(self) -> dict[str, int]:
        """The number of classes in each class average, with those a policy gives a number."""
        return {
            name: self.defined[name] if policy == "skip" else len(self.classes)
            for name, policy in self._policies.items()
        }

    @property
    def _policies(self) -> dict[str, ZeroDivision | Undefined]:
        ranked = ("auc", "ap", "bacc")
        return {
            name: self.undefined if metric in ranked else self.zero_division
            for name, metric in AVERAGED_METRIC.items()
        }

    def over_testable_classes(self) -> Report:
        """Return this report with class averages over the classes with positives and negatives.

        Of positives alone every ranking is perfect, and no call is wrong.
        """
        counts = zip(self.per_class["positives"], self.per_class["negatives"])
        testable = [positives > 0 and negatives > 0 for positives, negatives in counts]
        kept = {name: tuple(compress(values, testable)) for name, values in self.per_class.items()}
        averages = class_averages(kept, self.zero_division, self.undefined)
        averages["class_f1"] = _class_f1(averages, self.zero_division)
        return replace(
            self,
            averages=self.averages | averages,
            defined={name: len(defined_only(kept[m])) for name, m in AVERAGED_METRIC.items()},
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON, in which undefined values are None instead of NaN."""
        plain: dict[str, Any] = nan_to_none(asdict(self))
        return plain | {"averaged": self.averaged}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Report:
        expected = {field.name for field in fields(cls)}
        for name in stored.keys() - expected - {"averaged"}:  # computed from the others
            raise UserError(f"a report has no field {name!r}{nearest(name, expected)}")
        if missing := expected - stored.keys():
            raise UserError(f"a stored report lacks the fields {sorted(missing)}")
        per_class = none_to_nan(stored["per_class"])
        return cls(
            classes=tuple(stored["classes"]),
            per_class={name: tuple(values) for name, values in per_class.items()},
            averages=none_to_nan(stored["averages"]),
            defined=dict(stored["defined"]),
            zero_division=stored["zero_division"],
            undefined=stored["undefined"],
        )


def score(  # noqa: PLR0913
    probabilities: Tensor,
    labels: Tensor,
    known: Tensor,
    classes: Sequence[str],
    *,
    threshold: Threshold = 0.5,
    strict: bool = False,
    zero_division: ZeroDivision = 0.0,
    undefined: Undefined = "skip",
    predicted: Tensor | None = None,
    memory_mb: int = MEMORY_MB,
) -> Report:
    """Score probabilities against the known labels; the three tensors are (N, C).

    Args:
        threshold: one number, one per class, or ``"largest"``: each image's most probable class
            and no other; then ``subset_accuracy`` is the accuracy.
        strict: predict a class only above its threshold, not at it.
        zero_division: the value of an undefined precision, recall or F1 in an average; ``"nan"``
            makes the average undefined too, ``"skip"`` leaves the class out.
        undefined: the same for AUC, AP and BACC; with ``"zero"`` only the undefined half of BACC
            is 0.
        predicted: (N, C) bool, the decisions; None: by ``threshold``.
        memory_mb: of all that this takes, about, beside what it is given; ``overall_ap`` differs
            in its last digits.
    """
    check_policies(zero_division, undefined)
    check_shapes(probabilities, labels, known)
    room, pooled_room = (max(1, memory_mb * 2**20 // each) for each in (ENTRY_BYTES, POOLED_BYTES))
    images = WholeImages.of(probabilities)
    decide = decide_by(probabilities, threshold, strict)
    counted, ranked = [], []
    for columns, entries in entries_by_classes(probabilities, labels, known, room):
        called = decide(columns, entries.scores) if predicted is None else predicted[:, columns]
        counted.append(count_predictions(entries, called))
        ranked.append(rank_classes(entries))
        images.add(entries, called)
    _check_classes_and_range(probabilities, classes)
    counts = joined(counted)
    per_class = _per_class(RankingMetrics(*map(torch.cat, zip(*ranked))), counts)
    averages = class_averages(per_class, zero_division, undefined)
    averages["class_f1"] = _class_f1(averages, zero_division)
    together = rank_together(probabilities, labels, known, pooled_room)
    averages |= _overall(together, counts.pooled(), zero_division, undefined)
    averages["subset_accuracy"] = images.subset_accuracy().item()
    return Report(
        classes=tuple(classes),
        per_class=per_class,
        averages=averages,
        defined={name: len(defined_only(per_class[m])) for name, m in AVERAGED_METRIC.items()},
        zero_division=zero_division,
        undefined=undefined,
    )


def _check_classes_and_range(probabilities: Tensor, classes: Sequence[str]) -> None:
    width = probabilities.shape[1]
    if len(classes) != width or len(set(classes)) != width:
        raise UserError(
            f"found {len(classes)} class names, {len(set(classes))} of them distinct, for {width} "
            "columns of probabilities; give each column its own name"
        )
    if not probabilities.numel():
        return
    low, high = probabilities.aminmax()
    if low < -ROUNDING or high > 1 + ROUNDING:
        outside = (probabilities < -ROUNDING) | (probabilities > 1 + ROUNDING)
        raise UserError(
            f"{int(outside.sum())} probabilities lie outside [0, 1], for example "
            f"{probabilities[outside][0].item()}; apply the sigmoid to logits first"
        )


def _per_class(ranking: RankingMetrics, counts: Counts) -> dict[str, tuple[float, ...]]:
    columns = {
        "auc": ranking.auc,
        "ap": ranking.ap,
        "bacc": counts.balanced_accuracy(),
        "precision": counts.precision(),
        "recall": counts.recall(),
        "specificity": counts.specificity(),
        "f1": counts.f1(),
        "positives": counts.positives.double(),
        "negatives": counts.negatives.double(),
    }
    return {name: tuple(column.tolist()) for name, column in columns.items()}


def _overall(
    ranking: RankingMetrics, pooled: Counts, zero_division: ZeroDivision, undefined: Undefined
) -> dict[str, float]:
    """Metrics of all classes as one binary problem; the policy "skip" gives NaN if undefined."""
    ranked = {"micro_auc": ranking.auc, "overall_ap": ranking.ap}
    divided = {
        "overall_precision": pooled.precision(),
        "overall_recall": pooled.recall(),
        "overall_f1": pooled.f1(),
    }
    return {
        **{name: or_else(v.item(), substitute_for(undefined)) for name, v in ranked.items()},
        **{name: or_else(v.item(), substitute_for(zero_division)) for name, v in divided.items()},
        "hamming": pooled.hamming().item(),
    }


def _class_f1(averages: Mapping[str, float], zero_division: ZeroDivision) -> float:
    precision, recall = averages["class_precision"], averages["class_recall"]
    if precision + recall == 0:  # the limit is 0, even if the policy sets 0 / 0 to 1
        return nan if isnan(substitute_for(zero_division)) else 0.0
    return 2 * precision * recall / (precision + recall)


def mean_over_reports(reports: Collection[Report]) -> dict[str, float | None]:
    """Mean of every average over the reports where it is defined."""
    return {name: _mean(values) for name, values in _defined(reports).items()}


def deviation_over_reports(reports: Collection[Report]) -> dict[str, float | None]:
    """Sample standard deviation of every average; None for fewer than two reports."""
    return {
        name: statistics.stdev(values) if len(values) > 1 else None
        for name, values in _defined(reports).items()
    }


def count_over_reports(reports: Collection[Report]) -> dict[str, int]:
    """Number of reports in which each average is defined."""
    return {name: len(values) for name, values in _defined(reports).items()}


def class_mean_over_reports(reports: Collection[Report], metric: str) -> dict[str, float | None]:
    """Mean of a metric per class over the reports where it is defined."""
    classes = next(iter(reports)).classes
    columns = zip(*(report.per_class[metric] for report in reports))
    return {name: _mean(column) for name, column in zip(classes, columns)}


def _defined(reports: Collection[Report]) -> dict[str, list[float]]:
    names = next(iter(reports)).averages
    return {name: defined_only(report.averages[name] for report in reports) for name in names}


def _mean(values: Iterable[float]) -> float | None:
    defined = defined_only(values)
    return statistics.fmean(defined) if defined else None


def nan_to_none(value: Any) -> Any:
    """Replace NaN by None in nested mappings and sequences, which become dicts and lists."""
    if isinstance(value, float) and isnan(value):
        return None
    return _map_items(value, nan_to_none)


def none_to_nan(value: Any) -> Any:
    """Replace None by NaN; the inverse of :func:`nan_to_none` if None only means undefined."""
    return nan if value is None else _map_items(value, none_to_nan)


def _map_items(value: Any, replace: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: replace(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [replace(item) for item in value]
    return value
