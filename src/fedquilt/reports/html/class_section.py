"""Sections on single classes: the table with intervals, and the curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedquilt.core.wording import counted
from fedquilt.reports.html.curves import FEW_IN_BIN, Bin, Curves, Reliability, polyline
from fedquilt.reports.html.findings import Estimate, Finding
from fedquilt.reports.html.formatting import count, listed, named, number, percent
from fedquilt.reports.style import UNDEFINED

MAX_NAMED = 3  # sites; of more, only the number is shown
MARKS = {
    "measured": ("", ""),
    "chance": ("≈", "the interval reaches 50 % or less: perhaps guessing"),
    "few": ("!", "too few with or without it: do not rely on it"),
    "untested": ("∅", "could not be tested"),
}


def class_rows(
    findings: Sequence[Finding], curves: Mapping[int, Curves], site_count: int
) -> list[dict[str, Any]]:
    """Return a row of the table per class; the number comes first in a cell, so that it sorts."""
    return [
        {
            "name": named(each.name),
            "mark": MARKS[each.judgement][0],
            "why": MARKS[each.judgement][1],
            "counts": [
                _counts(each.positives, each.positive_patients),
                _counts(each.negatives, each.negative_patients),
            ],
            "estimates": [
                cell(estimate)
                for estimate in (each.auc, each.ap, each.sensitivity, each.specificity)
            ],
            # Why nothing was fitted is short here; model.json has it in full.
            "threshold": (percent(each.threshold.probability), each.threshold.rule.split(";")[0]),
            "slope": _slope(curves.get(each.place)),
            "annotators": annotated_by(each.annotators, site_count),
        }
        for each in findings
    ]


def _slope(curves: Curves | None) -> dict[str, str]:
    """Return the calibration slope with its interval: 1 if scores are probabilities."""
    if curves is None or curves.raw is None or curves.raw.slope is None:
        return {"value": UNDEFINED, "interval": ""}
    value, low, high = curves.raw.slope
    return {"value": number(value), "interval": f"{number(low)} to {number(high)}"}


def cell(estimate: Estimate) -> dict[str, str]:
    """Return the number in percent and its interval."""
    ends = (
        f"{percent(estimate.low)}–{percent(estimate.high)}"
        if estimate.value is not None and estimate.has_interval
        else ""
    )
    return {"value": percent(estimate.value), "interval": ends}


def _counts(images: int, patients: int | None) -> str:
    return count(images) if patients is None else f"{count(images)} ({count(patients)})"


def annotated_by(names: Sequence[str], site_count: int) -> str:
    if not names:
        return "no site"
    if len(names) == site_count:
        return "all sites" if site_count > 1 else names[0]
    return f"{len(names)} of {site_count}" if len(names) > MAX_NAMED else listed(list(names))


def curve_blocks(
    findings: Sequence[Finding], curves: Mapping[int, Curves], size: int = 100
) -> list[dict[str, Any]]:
    """Return the drawings of every class that has curves; coordinates are in a square of 100."""
    blocks = []
    for each in findings:
        found = curves.get(each.place)
        if found is None or not found.roc:
            continue
        raw, calibrated = found.raw, found.calibrated
        digits = 0 if raw is None else 1  # whole numbers where many curves are drawn
        blocks.append(
            {
                "place": each.place,
                "name": named(each.name),
                "auc": cell(each.auc),
                "ap": cell(each.ap),
                "positives": each.positives,
                "negatives": each.negatives,
                "prevalence": _share(each),
                "roc": polyline(found.roc, size, digits),
                "pr": polyline(found.precision_recall, size, digits),
                "is_short": raw is None,
                "bins": [] if raw is None else [_drawn_bin(b, size) for b in raw.bins],
                "entries": 0 if raw is None else raw.entries,
                "raw": [] if raw is None else _reliability_rows(raw),
                "calibrated": calibrated and _reliability_rows(calibrated),
                "after": [_drawn_bin(b, size) for b in calibrated.bins] if calibrated else [],
                "decision": decision_sentence(each),
            }
        )
    return blocks


def decision_sentence(finding: Finding) -> str:
    """Write PPV and NPV as a sentence, at the prevalence of the test images."""
    ppv, npv = finding.ppv, finding.npv
    if ppv.value is None and npv.value is None:
        return ""
    shares = [
        f"{words} {cell(each)['value']} %{_brackets(each)}"
        for words, each in (("PPV", ppv), ("NPV", npv))
        if each.value is not None
    ]
    prevalence = percent(_share(finding))
    return f"At a score of {percent(finding.threshold.probability)} % or more: " + (
        f"{', '.join(shares)}, at a prevalence of {prevalence} % as in the test images."
    )


def _brackets(estimate: Estimate) -> str:
    ends = cell(estimate)["interval"]
    return f" ({ends})" if ends else ""


def _reliability_rows(raw: Reliability) -> list[tuple[str, str]]:
    rows = [("Brier score", number(raw.brier, 3)), ("ECE", number(raw.error, 3))]
    for name, estimate in (("slope", raw.slope), ("intercept", raw.intercept)):
        if estimate is not None:
            value, low, high = estimate
            rows.append((name, f"{number(value)} ({number(low)} to {number(high)})"))
    return rows


def _share(finding: Finding) -> float:
    return finding.positives / max(finding.positives + finding.negatives, 1)


def _drawn_bin(bin_: Bin, size: int) -> dict[str, Any]:
    return {
        "x": f"{size * bin_.predicted:.1f}",
        "y": f"{size * (1 - bin_.observed):.1f}",
        "low": f"{size * (1 - bin_.low):.1f}",
        "high": f"{size * (1 - bin_.high):.1f}",
        "hollow": bin_.entries < FEW_IN_BIN,
        "text": f"{percent(bin_.predicted, 0)} % predicted, {percent(bin_.observed, 0)} % observed,"
        f" {counted(bin_.entries, 'image')}",
    }


def forest(findings: Sequence[Finding], most: int = 20) -> dict[str, Any]:
    """Return the picture of the first screen: an AUC with its interval per class, best first.

    With more classes than fit, the best and the worst that the test can judge are shown.
    """
    tested = [each for each in findings if each.auc.value is not None]
    ranked = sorted(tested, key=lambda each: (-(each.auc.value or 0.0), each.place))
    omitted = 0
    if len(ranked) > most:
        judged = [each for each in ranked if each.judgement != "few"] or ranked
        omitted = len(ranked) - most
        if len(judged) > most:
            judged = [*judged[: most // 2], *judged[-(most // 2) :]]
        ranked = judged
        omitted = len(tested) - len(ranked)
    ends = [end for each in ranked for end in (each.auc.low, each.auc.value) if end is not None]
    start = 0.4 if min(ends, default=1.0) >= 0.4 else 0.0
    return {
        "rows": [_forest_row(each, start) for each in ranked],
        "start": start,
        "chance": percent((0.5 - start) / (1 - start), 2),
        "ticks": [
            (percent((each / 10 - start) / (1 - start), 2), f"{10 * each}")
            for each in range(round(10 * start), 11, 1 if start else 2)
        ],
        "omitted": omitted,
        "gap": most // 2 if omitted and len(ranked) == most else None,
        "has_intervals": any(each.auc.has_interval for each in ranked),
        "has_few": any(each.judgement == "few" for each in ranked),
    }


def _forest_row(finding: Finding, start: float) -> dict[str, Any]:
    auc = finding.auc

    def place(value: float | None) -> str | None:
        if value is None:
            return None
        return percent(min(max((value - start) / (1 - start), 0.0), 1.0), 2)

    low, high = auc.low, auc.high
    width = None
    if low is not None and high is not None:
        width = percent((min(high, 1.0) - max(low, start)) / (1 - start), 2)
    return {
        "name": named(finding.name),
        "judgement": finding.judgement,
        "mark": MARKS[finding.judgement][0],
        "why": MARKS[finding.judgement][1],
        "value": percent(auc.value) if auc.value is not None else UNDEFINED,
        "interval": cell(auc)["interval"],
        "at": place(auc.value),
        "low": place(low),
        "width": width,
        "positives": count(
            finding.positives if finding.positive_patients is None else finding.positive_patients
        ),
    }
