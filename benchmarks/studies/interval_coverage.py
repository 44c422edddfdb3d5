"""How often the 95 % intervals of an AUC hold the true AUC, from few patients to many.

    python -m benchmarks.studies.interval_coverage

Scores are drawn from a binormal model: N(0, 1) for negatives, N(d, sd) for positives. With several
images a patient they share a part of their score: ``correlation`` is that between two images of one
patient. "mixed": half of a positive patient's images are positive; otherwise all of them are.
"ours" is the interval that a run prints; the others are what it chooses from, and DeLong's.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import isnan, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np

from benchmarks.harness.result_csv import write_results
from fedquilt.metrics.intervals import auc_interval, logit_interval, newcombe, quantile
from fedquilt.metrics.placements import Influence, influence

Interval = tuple[float, float]


@dataclass(frozen=True)
class Setting:
    """Patients with and without the finding, and how their scores are drawn."""

    positive_patients: int
    negative_patients: int
    auc: float
    sd: float = 1.0  # of positives' scores
    images: int = 1  # of each patient
    correlation: float = 0.0
    mixed: bool = False


GRID = (
    Setting(3, 50, 0.80),
    Setting(10, 100, 0.80),
    Setting(10, 100, 0.95),
    Setting(5, 200, 0.95),
    Setting(30, 300, 0.90),
    Setting(10, 100, 0.90, sd=2.0),
    Setting(10, 100, 0.90, sd=0.5),
    Setting(30, 300, 0.90, sd=2.0),
    Setting(30, 300, 0.90, sd=0.5),
    *(
        Setting(patients, 5 * patients, 0.85, images=4, correlation=0.6, mixed=mixed)
        for patients in (8, 20, 60)
        for mixed in (False, True)
    ),
)


def draws(setting: Setting, count: int) -> Iterator[Influence]:
    """Yield the AUC and its influences in samples of the setting."""
    random = np.random.default_rng(0)
    patients = setting.positive_patients + setting.negative_patients
    owner = np.repeat(np.arange(patients), setting.images)
    positive = owner < setting.positive_patients
    if setting.mixed:
        positive &= np.arange(len(owner)) % setting.images < setting.images // 2
    distance = NormalDist().inv_cdf(setting.auc) * sqrt(1 + setting.sd**2)
    shared, own = sqrt(setting.correlation), sqrt(1 - setting.correlation)
    for _ in range(count):
        of_patients = random.standard_normal(patients)[owner]
        scores = shared * of_patients + own * random.standard_normal(len(owner))
        scores = np.where(positive, distance + setting.sd * scores, scores)
        yield influence(scores, positive, owner, patients)


def intervals(found: Influence) -> dict[str, Interval]:
    """Return every interval by name; one that is undefined holds nothing."""
    ours, auc = auc_interval(found), found.auc
    images, patients = found.variance_of_images, found.variance
    design = max(1.0, patients / images) if images > 0 and not isnan(patients) else 1.0
    sizes = (found.size.positives / design, found.size.negatives / design)
    half = quantile() * sqrt(images)
    can_logit = 0 < auc < 1
    return {
        "ours": (ours.low, ours.high),
        "delong_wald": (auc - half, auc + half),
        "delong_logit": logit_interval(auc, sqrt(images)) if can_logit else (auc, auc),
        "clustered_logit": logit_interval(auc, sqrt(patients)) if can_logit else (auc, auc),
        "newcombe": newcombe(auc, *sizes),
    }


def measure(setting: Setting, count: int) -> dict[str, Any]:
    held: dict[str, int] = {}
    missed = {"above": 0, "below": 0}
    widths = []
    for found in draws(setting, count):
        for name, (low, high) in intervals(found).items():
            held[name] = held.get(name, 0) + (low <= setting.auc <= high)
            if name == "ours":
                widths.append(high - low)
                missed["above"] += low > setting.auc
                missed["below"] += high < setting.auc
    percent = {name: round(100 * hits / count, 1) for name, hits in held.items()}
    return {
        **asdict(setting),
        "draws": count,
        **{f"coverage_{name}_percent": value for name, value in percent.items()},
        "ours_too_high_percent": round(100 * missed["above"] / count, 1),
        "ours_too_low_percent": round(100 * missed["below"] / count, 1),
        "ours_mean_width": round(float(np.mean(widths)), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=2000)
    options = parser.parse_args()
    rows = []
    for setting in GRID:
        rows.append(measure(setting, options.draws))
        print(rows[-1], flush=True)
    write_results("studies/interval_coverage", rows)


if __name__ == "__main__":
    main()
