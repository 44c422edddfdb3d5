"""The sites' reports of the final model, as ``by_site`` of result.json: like a simulation's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import Any, Literal

from torch import Tensor

from fedquilt.metrics import Report, nan_to_none
from fedquilt.metrics.across_sites import SiteAuc, auc_over_sites
from fedquilt.metrics.intervals import LEVEL
from fedquilt.privacy.site_report import CALIBRATION, COUNTS, DECISIONS, MACRO, NUMBERS
from fedquilt.runs.assessment import SiteAssessment

Columns = dict[str, list[float]]  # a number per class, NaN where it is not known


def by_site(
    reports: Mapping[str, Mapping[str, Tensor]],
    classes: Sequence[str],
    model: Literal["own", "global"],
) -> dict[str, Any]:
    """Return metrics and intervals at every site that reported, and means over the sites."""
    numbers = {site: _columns(report) for site, report in sorted(reports.items())}
    sizes = {site: [int(each) for each in reports[site]["sizes"]] for site in numbers}
    images = {site: size[0] for site, size in sizes.items()}
    assessed = SiteAssessment(
        model, {site: _report(of, classes) for site, of in numbers.items()}, images
    )
    over_sites = {
        name: auc_over_sites(
            [
                SiteAuc(of["auc"][place], of["auc_variance"][place], int(of["positives"][place]))
                for of in numbers.values()
            ]
        )
        for place, name in enumerate(classes)
    }
    further = {
        "part": {
            site: "test" if bool(reports[site]["flags"][0]) else "validation" for site in numbers
        },
        "intervals": {
            site: _intervals(of, reports[site], sizes[site], classes)
            for site, of in numbers.items()
        },
        "auc_over_sites": over_sites,
        "calibration": {
            site: {name: of[name] for name in CALIBRATION} for site, of in numbers.items()
        },
    }
    plain: dict[str, Any] = assessed.to_dict() | nan_to_none(further)
    return plain


def _columns(report: Mapping[str, Tensor]) -> Columns:
    numbers = report["numbers"].where(report["known"].bool(), nan)
    return dict(zip(NUMBERS, numbers.tolist()))


def _report(of: Columns, classes: Sequence[str]) -> Report:
    """Return the report of one site over the classes that it can test."""
    hits, missed, alarms, cleared = (of[name] for name in DECISIONS)
    recall = [_share(tp, tp + fn) for tp, fn in zip(hits, missed)]
    specificity = [_share(tn, tn + fp) for tn, fp in zip(cleared, alarms)]
    per_class = {
        "positives": of["positives"],
        "negatives": of["negatives"],
        "auc": of["auc"],
        "ap": of["ap"],
        "recall": recall,
        "specificity": specificity,
        "precision": [_share(tp, tp + fp) for tp, fp in zip(hits, alarms)],
        "f1": [
            _share(2 * tp, 2 * tp + fp + fn)
            for tp, fp, fn in zip(hits, alarms, missed, strict=True)
        ],
        "bacc": [(one + other) / 2 for one, other in zip(recall, specificity)],
    }
    return Report(
        classes=tuple(classes),
        per_class={name: tuple(values) for name, values in per_class.items()},
        averages={},
        defined={},
        zero_division="skip",
    ).over_testable_classes()


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else nan


def _intervals(
    of: Columns, report: Mapping[str, Tensor], size: Sequence[int], classes: Sequence[str]
) -> dict[str, Any]:
    macro = report["macro"].where(report["has_macro"].bool(), nan).tolist()
    return {
        "level": LEVEL,
        "unit": "patient" if bool(report["flags"][1]) else "image",
        "images": size[0],
        "patients": size[1],
        "classes": list(classes),
        **{name: [int(each) for each in of[name]] for name in COUNTS},
        "per_class": {
            name: {"value": of[name], "low": of[f"{name}_low"], "high": of[f"{name}_high"]}
            for name in ("auc", "ap")
        },
        "averages": {"macro_auc": dict(zip(MACRO, macro))},
    }
