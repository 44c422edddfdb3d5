"""Intervals of a model's metrics per class and of its macro-AUC, as plain data for result.json."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import fsum, nan, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from fedquilt.metrics.bootstrap import (
    MIN_POSITIVE_PATIENTS,
    patient_bootstrap,
    percentile_interval,
)
from fedquilt.metrics.intervals import (
    LEVEL,
    UNDEFINED,
    Interval,
    ap_interval,
    auc_interval,
    logit_interval,
    quantile,
    rate_interval,
)
from fedquilt.metrics.labelled_images import ClassEntries, LabelledImages
from fedquilt.metrics.placements import Floats, Influence, Mask, sum_of_squares

MAX_DRAWN_COUNTS = 10_000_000  # with more decisions to draw, F1 gets no interval: it takes minutes
Columns = dict[str, list[Any]]


def model_intervals(
    images: LabelledImages,
    logits: npt.NDArray[np.floating],
    predicted: Mask,
    classes: Sequence[str],
    *,
    seed: int = 0,
) -> dict[str, Any]:
    """Return the intervals of one model; undefined numbers are NaN.

    Args:
        images: what is known of the images.
        logits: (N, C), or other scores.
        predicted: (N, C) whether the model calls the class present.
        classes: the names of the columns.
        seed: of the bootstrap.
    """
    auc = list(images.influences([logits]))
    entries = [images.of_class(column) for column in range(len(classes))]
    per_class = {"auc": [auc_interval(each) for each in auc]}
    per_class["ap"] = [
        ap_interval(
            average_precision(logits[each.rows, column], each.positive),
            auc[column].size.positive_patients,
        )
        for column, each in enumerate(entries)
    ]
    per_class |= _rates(images, entries, predicted)
    per_class["f1"] = _f1(images, entries, predicted, auc, seed)
    return {
        **_description(images, classes, auc),
        "per_class": {name: _columns(values) for name, values in per_class.items()},
        "averages": {"macro_auc": macro_auc(auc)},
    }


def mean_intervals(
    images: LabelledImages, models: Sequence[npt.NDArray[np.floating]], classes: Sequence[str]
) -> dict[str, Any]:
    """Return the intervals of the mean AUC of several models, e.g. of each client's own."""
    found = auc_intervals(images, classes, list(images.influences(models)))
    return {"models": len(models), **found}


def auc_intervals(
    images: LabelledImages, classes: Sequence[str], auc: Sequence[Influence]
) -> dict[str, Any]:
    """Return the intervals of the AUC only."""
    return {
        **_description(images, classes, auc),
        "per_class": {"auc": _columns([auc_interval(each) for each in auc])},
        "averages": {"macro_auc": macro_auc(auc)},
    }


def _description(
    images: LabelledImages, classes: Sequence[str], auc: Sequence[Influence]
) -> dict[str, Any]:
    """The basis of the numbers: the level, the unit, and counts per class."""
    return {
        "level": LEVEL,
        "unit": images.unit,
        "images": len(images.labels),
        "patients": images.patient_count,
        "classes": list(classes),
        "positives": [each.size.positives for each in auc],
        "negatives": [each.size.negatives for each in auc],
        "positive_patients": [each.size.positive_patients for each in auc],
        "negative_patients": [each.size.negative_patients for each in auc],
    }


def macro_auc(influences: Iterable[Influence], level: float = LEVEL) -> dict[str, Any]:
    """Return the mean AUC over the classes that have one, with its interval.

    Classes share patients, and their common influence is counted. A class whose variance cannot be
    estimated (all its positives of one patient, or perfectly separated) adds that of Newcombe's
    interval, as if it were of other patients.
    """
    defined = [each for each in influences if each.size.is_testable]
    if not defined:
        return {"value": nan, "low": nan, "high": nan, "rule": None, "classes": 0}
    value = fsum(each.auc for each in defined) / len(defined)
    of_patients = np.sum([each.of_patients for each in defined], axis=0)
    variance = sum_of_squares(of_patients)
    single = [auc_interval(each, level) for each in defined]
    for each, interval in zip(defined, single):
        if not each.is_estimated or each.variance == 0:
            variance += ((interval.high - interval.low) / (2 * quantile(level))) ** 2
    error, rule = sqrt(variance) / len(defined), "logit"
    if 0 < value < 1 and error > 0:
        low, high = logit_interval(value, error, level)
    else:
        low, high = (fsum(ends) / len(defined) for ends in zip(*((i.low, i.high) for i in single)))
        rule = "mean of bounds"
    return {"value": value, "low": low, "high": high, "rule": rule, "classes": len(defined)}


def average_precision(scores: npt.NDArray[np.floating], positive: Mask) -> float:
    """Step-wise average precision of one class's known entries; NaN without positives."""
    total = int(positive.sum())
    if not total:
        return nan
    order = np.argsort(-scores, kind="stable")
    ordered, found = scores[order], np.cumsum(positive[order])
    last = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))  # of images that tie
    found, called = found[last], last + 1
    gained = np.diff(found, prepend=0)
    return fsum((gained * (found / called)).tolist()) / total


def _rates(
    images: LabelledImages, entries: Sequence[ClassEntries], predicted: Mask
) -> dict[str, list[Interval]]:
    rates: dict[str, list[Interval]] = {}
    for column, each in enumerate(entries):
        called, truth = predicted[each.rows, column], each.positive
        for name, hits, trials in (
            ("sensitivity", called & truth, truth),
            ("specificity", ~called & ~truth, ~truth),
            ("ppv", called & truth, called),
            ("npv", ~called & ~truth, ~called),
        ):
            interval = rate_interval(images.sums(each, hits), images.sums(each, trials))
            rates.setdefault(name, []).append(interval)
    return rates


def _f1(
    images: LabelledImages,
    entries: Sequence[ClassEntries],
    predicted: Mask,
    auc: Sequence[Influence],
    seed: int,
) -> list[Interval]:
    """F1 per class, with a bootstrap interval from five patients with a positive on."""
    count = len(entries)
    table = _decisions(images, entries, predicted)
    totals = np.asarray(table.sum(axis=0), dtype=np.float64).reshape(1, -1)
    values = f1_of_counts(totals)[0]
    if table.nnz > MAX_DRAWN_COUNTS:
        return [Interval(float(value), nan, nan, None) for value in values]
    sites = images.site_of_patients()
    drawn = patient_bootstrap(table, f1_of_counts, sites=sites, seed=seed)
    low, high, _ = percentile_interval(drawn)
    return [
        Interval(float(values[c]), float(low[c]), float(high[c]), "bootstrap")
        if auc[c].size.positive_patients >= MIN_POSITIVE_PATIENTS
        else Interval(float(values[c]), nan, nan, None)
        for c in range(count)
    ]


def _decisions(
    images: LabelledImages, entries: Sequence[ClassEntries], predicted: Mask
) -> sparse.csr_matrix:
    """(P, 2C): each patient's doubled true positives, and its called plus its true positives."""
    rows, columns, values = [], [], []
    for column, each in enumerate(entries):
        called, truth = predicted[each.rows, column], each.positive
        for place, counts in (
            (column, 2 * images.sums(each, called & truth)),
            (column + len(entries), images.sums(each, called) + images.sums(each, truth)),
        ):
            filled = np.flatnonzero(counts)
            rows.append(filled)
            columns.append(np.full(len(filled), place))
            values.append(counts[filled])
    shape = (images.patient_count, 2 * len(entries))
    cells = np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))
    return sparse.csr_matrix(cells, shape=shape)


def f1_of_counts(sums: Floats) -> Floats:
    """F1 (draws, C) of the totals of :func:`_decisions`; NaN without a positive or a call."""
    doubled, both = np.split(sums, 2, axis=1)
    return np.divide(doubled, both, out=np.full_like(doubled, nan), where=both > 0)


def _columns(intervals: Sequence[Interval]) -> Columns:
    return {field: [getattr(each, field) for each in intervals] for field in Interval._fields}


def class_interval(intervals: Mapping[str, Any], metric: str, column: int) -> Interval:
    """Read one interval back from the plain data of a model."""
    columns = intervals["per_class"].get(metric)
    if columns is None:
        return UNDEFINED
    return Interval(*(columns[field][column] for field in Interval._fields))
