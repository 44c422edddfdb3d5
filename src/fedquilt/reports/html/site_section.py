"""Sections on sites: metrics at each site, attendance in a study, and what left each site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedquilt.metrics.across_sites import MIN_SITE_POSITIVES
from fedquilt.reports.html.formatting import count, listed, named, percent, size
from fedquilt.reports.html.run_files import RunFiles
from fedquilt.reports.style import UNDEFINED

MAX_SITES = 60  # in a table
MAX_CELLS = 1_000  # of the table of findings and sites; result.json has all
AVERAGES = ("macro_auc", "map")


def site_section(run: RunFiles) -> dict[str, Any]:
    """Return metrics of the models on each site's own test images, if there are any."""
    by_site = run.result.get("by_site")
    if not by_site:
        return {"rows": [], "model": None, "findings": {"rows": []}}
    names = list(by_site["reports"])
    return {
        "model": by_site["model"],
        "rows": [_site_row(name, by_site) for name in names[:MAX_SITES]],
        "omitted": max(0, len(names) - MAX_SITES),
        "mean": [percent(by_site["mean"][key]) for key in AVERAGES],
        "deviation": [percent(by_site["deviation"][key]) for key in AVERAGES],
        "findings": _findings_and_sites(by_site, run.classes),
    }


def _findings_and_sites(by_site: Mapping[str, Any], classes: Sequence[str]) -> dict[str, Any]:
    """Return the AUC of every finding at every site and over sites; no rows if too many."""
    intervals, over_sites = by_site.get("intervals", {}), by_site.get("auc_over_sites")
    if over_sites is None or len(classes) * len(intervals) > MAX_CELLS:
        return {"rows": []}
    missing = {"mean": None, "low": None, "high": None, "sites": 0}
    rows = []
    for place, name in enumerate(classes):
        cells = [
            _cell(*(each["per_class"]["auc"][field][place] for field in ("value", "low", "high")))
            | {"positives": _positives(each, place)}
            for each in intervals.values()
        ]
        over = over_sites.get(name) or missing
        mean = _cell(over["mean"], over["low"], over["high"]) | {"sites": count(over["sites"])}
        rows.append({"name": named(name), "cells": cells, "over": mean})
    return {"rows": rows, "sites": list(intervals), "least": MIN_SITE_POSITIVES}


def _positives(intervals: Mapping[str, Any], place: int) -> str:
    """Return the positives at a site; nothing where it has annotated no test image."""
    positives, negatives = intervals["positives"][place], intervals["negatives"][place]
    return f"{count(positives)} positive" if positives + negatives else ""


def _cell(value: float | None, low: float | None, high: float | None) -> dict[str, str]:
    interval = "" if low is None or high is None else f"{percent(low)}–{percent(high)}"
    return {"value": percent(value), "interval": interval}


def _site_row(name: str, by_site: Mapping[str, Any]) -> dict[str, Any]:
    report = by_site["reports"][name]
    defined = report["defined"]["macro_auc"]
    tested = [
        found
        for found, absent in zip(report["per_class"]["positives"], report["per_class"]["negatives"])
        if found + absent
    ]
    return {
        "name": name,
        "images": count(by_site["images"][name]),
        "classes": count(defined),
        "fewest": count(min(tested, default=None)),
        # A mean over no class is no number: a site whose classes cannot be tested has none.
        "averages": [percent(report["averages"][key] if defined else None) for key in AVERAGES],
        "interval": _interval(by_site, name),
    }


def _interval(by_site: Mapping[str, Any], name: str) -> str:
    found = by_site.get("intervals", {}).get(name, {}).get("averages", {}).get("macro_auc", {})
    return _cell(None, found.get("low"), found.get("high"))["interval"]


def attendance(run: RunFiles) -> list[dict[str, Any]]:
    """Return, for every site of a study, its rounds, and what was refused and why."""
    if not run.is_study:
        return []
    rows = []
    for site in run.annotated:
        missed = [each for each in run.history if site in each.get("missing", {})]
        refused = [each for each in run.audit_log if _is(each, "refused", site)]
        failed = [each for each in run.audit_log if _is(each, "failed", site)]
        reasons = [str(each["missing"][site]) for each in missed]
        reasons += [str(each.get("reason", "")) for each in (*refused, *failed)]
        rows.append(
            {
                "name": site,
                "trained": count(sum(site in each.get("cohort", ()) for each in run.history)),
                "rounds": count(len(run.history)),
                "missed": ", ".join(str(each["round"]) for each in missed[:10])
                + (" …" if len(missed) > 10 else ""),
                "refused": count(len(refused)),
                "failed": count(len(failed)),
                "reasons": list(dict.fromkeys(reasons))[:5],
                "has_final": site not in run.result.get("missed_the_end", {}),
            }
        )
    return rows


def leaving_section(run: RunFiles) -> dict[str, Any]:
    """Return the parts that leave a site, their sizes, and what was withheld."""
    leaving = run.data.get("leaving") or {}
    floor = leaving.get("min_cell", run.recipe.get("min_cell", 0))
    parts = [
        {
            "part": each["part"],
            "when": each["when"],
            "kind": each["kind"] or UNDEFINED,
            "numbers": count(each["numbers"]),
            "bytes": size(each["bytes"]),
        }
        for each in leaving.get("parts", ())
    ]
    return {
        "is_study": run.is_study,
        "floor": floor if floor > 1 else 0,
        "parts": parts or _received_parts(run),
        "withheld": [
            {"site": site, "part": part, "classes": listed(classes, most=10)}
            for site, found in leaving.get("suppressed", {}).items()
            for part, classes in found.items()
        ],
        "silent": leaving.get("silent", {}),
        "unlisted": leaving.get("clients", 0) - leaving.get("listed", 0) if floor > 1 else 0,
        "up": size(run.result.get("bytes_up")),
        "down": size(run.result.get("bytes_down")),
        "rounds": count(len(run.history)),
        "by_site": _traffic(run),
    }


def _received_parts(run: RunFiles) -> list[dict[str, Any]]:
    """Return the parts that a study's server received, as the audit log has them."""
    parts: dict[tuple[str, str], dict[str, Any]] = {}
    for event in run.audit_log:
        if event.get("event") != "received":
            continue
        for name, part in event.get("parts", {}).items():
            parts[(event.get("kind", ""), name)] = part
    words = {
        "survey": "once",
        "train": "every round",
        "validate": "validated rounds",
        **dict.fromkeys(("end", "histograms", "report"), "at the end"),
    }
    return [
        {
            "part": name,
            "when": words.get(kind, kind),
            "kind": part["kind"],
            "numbers": count(part["numbers"]),
            "bytes": size(part["bytes"]),
        }
        for (kind, name), part in parts.items()
    ]


def _traffic(run: RunFiles) -> list[dict[str, Any]]:
    """Return the messages and bytes from and to every site of a study."""
    if not run.audit_log:
        return []
    rows = []
    for site in run.annotated:
        received = [each for each in run.audit_log if _is(each, "received", site)]
        sent = [each for each in run.audit_log if _is(each, "sent", site)]
        rows.append(
            {
                "name": site,
                "messages": count(len(received)),
                "up": size(sum(each["bytes"] for each in received)),
                "down": size(sum(each["bytes"] for each in sent)),
            }
        )
    return rows


def _is(event: Mapping[str, Any], kind: str, site: str) -> bool:
    return event.get("event") == kind and event.get("site") == site
