"""Random effects over sites: a mean of AUCs where sites differ by more than chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from fedquilt.metrics.intervals import LEVEL

MIN_SITE_POSITIVES = 10  # of a class at a site, to count in the mean over sites


class SiteAuc(NamedTuple):
    """A class's AUC at one site; a NaN variance could not be estimated."""

    auc: float
    variance: float
    positives: int


@dataclass(frozen=True)
class RandomEffects:
    """The mean effect over sites, e.g. of logit AUCs."""

    mean: float
    error: float  # Hartung & Knapp's standard error
    low: float
    high: float
    between: float  # tau2, DerSimonian & Laird's variance between sites


def random_effects(
    effects: Sequence[float], variances: Sequence[float], level: float = LEVEL
) -> RandomEffects:
    """Combine the effects of two sites or more with their variances within sites."""
    values, within = np.asarray(effects, dtype=np.float64), np.asarray(variances, dtype=np.float64)
    weights = 1 / within
    fixed = float(np.average(values, weights=weights))
    heterogeneity = float((weights * (values - fixed) ** 2).sum())
    scale = float(weights.sum() - (weights**2).sum() / weights.sum())
    count = len(values)
    between = max(0.0, (heterogeneity - (count - 1)) / scale)
    weights = 1 / (within + between)
    mean = float(np.average(values, weights=weights))
    spread = float((weights * (values - mean) ** 2).sum()) / (count - 1)
    error = sqrt(spread / float(weights.sum()))
    half = float(stdtrit(count - 1, 0.5 + level / 2)) * error
    return RandomEffects(mean, error, mean - half, mean + half, between)


def auc_over_sites(of_sites: Sequence[SiteAuc]) -> dict[str, Any] | None:
    """The mean AUC over the sites that can judge a class, made on the log-odds; None below two."""
    usable = [
        each
        for each in of_sites
        if each.positives >= MIN_SITE_POSITIVES and 0 < each.auc < 1 and each.variance > 0
    ]
    if len(usable) < 2:
        return None
    slopes = [each.auc * (1 - each.auc) for each in usable]
    found = random_effects(
        [log(each.auc / (1 - each.auc)) for each in usable],
        [each.variance / slope**2 for each, slope in zip(usable, slopes)],
    )
    mean, low, high = (1 / (1 + exp(-x)) for x in (found.mean, found.low, found.high))
    between = sqrt(found.between)  # a standard deviation of log-odds
    return {"mean": mean, "low": low, "high": high, "between": between, "sites": len(usable)}
