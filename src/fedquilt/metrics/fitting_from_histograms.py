"""Thresholds and calibration of a federation, fitted on the histograms that its sites sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

import numpy as np

from fedquilt.metrics.calibration import Outcomes
from fedquilt.metrics.decision_rules import DecisionRules
from fedquilt.metrics.fitting import (
    Basis,
    ClassSample,
    Interval,
    fallback,
    fit_calibration,
    fit_thresholds,
    given_thresholds,
)
from fedquilt.metrics.histograms import (
    BoundedAuc,
    Cells,
    Ints,
    bounded_auc,
    certain_cutoffs,
)
from fedquilt.metrics.intervals import newcombe

MIN_SITE_POSITIVES = 100  # with fewer, merged cells are too wide to serve a threshold
TOO_FEW = (
    f"no site has {MIN_SITE_POSITIVES} positives of it in its validation part, so the merged "
    "histograms are too coarse"
)


@dataclass(frozen=True)
class Fitted:
    """Plain data by class, as in ``model.json``."""

    thresholds: dict[str, Any]
    calibration: dict[str, Any]


def fit_from_histograms(
    rules: DecisionRules,
    fixed: float,
    classes: Sequence[str],
    sites: Mapping[str, Mapping[str, Cells]],
) -> Fitted:
    """Fit every class on the sites that have enough positives of it.

    Args:
        rules: of the recipe; isotonic calibration is not fitted from cells.
        fixed: the probability where nothing is fitted.
        classes: all of them.
        sites: the cells of each site by class.
    """
    usable = {name: _usable(name, sites) for name in classes}
    samples = {name: sample_of_cells(cells) for name, cells in usable.items() if cells}
    bounds = {name: bounded_auc(cells) for name, cells in usable.items() if cells}
    if rules.calibration == "isotonic":
        why = "isotonic calibration needs single scores, which do not leave the sites"
        calibration: dict[str, Any] = {name: {"fallback": why} for name in classes}
    else:
        calibration = fit_calibration(rules.calibration, samples)
    thresholds = fit_thresholds(rules, fixed, samples, calibration)
    for name, entry in thresholds.items():
        if "given" not in entry:
            entry["auc_bounds"] = [float(bounds[name].low), float(bounds[name].high)]
    for name in classes:
        if name in samples:
            continue
        if rules.of_class(name).is_fitted:
            thresholds[name] = fallback(fixed, TOO_FEW, {})
        if rules.calibration != "none":
            calibration.setdefault(name, {"fallback": TOO_FEW})
    return Fitted(given_thresholds(rules, tuple(classes)) | thresholds, calibration)


def _usable(name: str, sites: Mapping[str, Mapping[str, Cells]]) -> list[Cells]:
    held = [cells[name] for _, cells in sorted(sites.items()) if name in cells]
    return [cells for cells in held if int(cells.positives.sum()) >= MIN_SITE_POSITIVES]


def sample_of_cells(cells: Sequence[Cells]) -> ClassSample:
    """Return one class's sample; counts stand for patients, who cannot be told apart here.

    What a threshold reaches is what is certain: at least so many are found, and cleared.
    """
    counts = [sum(int(k.sum()) for k in kinds) for kinds in zip(*map(_counts, cells))]
    return ClassSample(
        cutoffs=certain_cutoffs(cells),
        outcomes=outcomes_of_cells(cells),
        basis=Basis(
            positives=counts[0],
            negatives=counts[1],
            positive_patients=counts[0],
            negative_patients=counts[1],
            sites=len(cells),
        ),
        auc_interval=_interval(bounded_auc(cells), counts[0], counts[1]),
    )


def _counts(cells: Cells) -> tuple[Ints, Ints]:
    return cells.positives, cells.negatives


def outcomes_of_cells(cells: Sequence[Cells]) -> Outcomes:
    """Return every cell's positives and negatives, each at their mean logit.

    Centres of cells would not do: the outer cells are open, and as wide as their scores are few.
    """
    none = [np.zeros(len(each.starts)) for each in cells]
    return Outcomes(
        np.concatenate([mean for c in cells for mean in (c.positive_means, c.negative_means)]),
        np.concatenate([part for c, zero in zip(cells, none) for part in (c.positives, zero)]),
        np.concatenate([part for c, zero in zip(cells, none) for part in (zero, c.negatives)]),
    )


def _interval(auc: BoundedAuc, positives: int, negatives: int) -> Interval:
    """Return Newcombe's interval of both certain bounds together."""
    if isnan(auc.value):
        return None
    return newcombe(auc.low, positives, negatives)[0], newcombe(auc.high, positives, negatives)[1]
