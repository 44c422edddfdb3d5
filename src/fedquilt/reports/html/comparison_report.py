"""The report of a comparison: methods on the same test images, as one HTML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedquilt.core.atomic_files import write_bytes
from fedquilt.core.version import VERSION
from fedquilt.core.wording import counted
from fedquilt.reports.comparison import many_tests_sentence
from fedquilt.reports.html.formatting import count, listed, named, percent
from fedquilt.reports.html.page import render_page
from fedquilt.reports.style import UNDEFINED, title

REPORT_FILE = "comparison.html"
MAX_ROWS = 60  # of a folded table: the classes with the smallest p; --json has all
STAR = "*"
LIMITS = (
    "A star marks a method that is significantly ahead of every other one (5 %, Holm). It never "
    "marks merely the largest number.",
    "Intervals are at 95 %, for other patients like those tested. They do not cover other "
    "hospitals or wrong labels.",
)
ONE_SEED = "One random seed: chance in training is no part of the intervals."
BOUNDS = "A bound sees labels that no site has annotated, so it is not ranked: {names}."


def write_comparison_report(compared: Mapping[str, Any], out: Path) -> Path:
    """Write the report of a comparison, as ``reports.comparison.compare`` returns it."""
    page = render_page("comparison.html", comparison_content(compared))
    out.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(out, page.encode("utf-8"))
    return out


def comparison_content(compared: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything that the template prints."""
    groups, tests = compared["groups"], compared["tests"]
    labels = [group["label"] for group in groups]
    runs = sum(len(group["runs"]) for group in groups)
    return {
        "title": f"{listed(labels, most=4)} compared",
        "lead": f"{counted(len(groups), 'row')} of {counted(runs, 'run')}, on the same test data",
        "tiles": _tiles(groups, tests),
        "sentences": [*(each["words"] for each in tests), *_no_tests(groups, tests)],
        "limits": _limits(compared),
        "differences": difference_rows(tests),
        "metrics": [
            {"title": title(name), **_seed_strips(groups, name, compared["ahead"].get(name))}
            for name in compared["metrics"]
        ],
        "labels": labels,
        "class_title": title(compared["class_metric"]),
        "classes": _class_rows(compared),
        "pairs": [_pair(test) for test in tests if test["classes"]],
        "most_rows": MAX_ROWS,
        "many": many_tests_sentence(tests),
        "runs": [
            (group["label"], f"{Path(path).name} (seed {seed})")
            for group in groups
            for path, seed in zip(group["runs"], group["seeds"])
        ],
        "version": VERSION,
    }


def _tiles(groups: Sequence[Any], tests: Sequence[Any]) -> list[tuple[str, str]]:
    tiles = [(count(len(groups)), "rows: methods, or settings of one")]
    seeds = [len(group["seeds"]) for group in groups]
    fewest, most = min(seeds), max(seeds)
    tiles.append((str(most) if fewest == most else f"{fewest}–{most}", "random seeds of a row"))
    tested = [test for test in tests if test["patients"]]
    if tested:
        unit = "images" if tested[0]["unit"] == "image" else "patients"
        tiles.append((count(tested[0]["patients"]), f"{unit} that all were tested on"))
        ahead = sum(test["macro_auc"]["ahead"] is not None for test in tested)
        tiles.append((f"{ahead} of {len(tested)}", "pairs in which one is significantly ahead"))
    return tiles


def _no_tests(groups: Sequence[Any], tests: Sequence[Any]) -> list[str]:
    if tests:
        return []
    return ["No two rows can be tested against each other: " + (
        "there is only one." if len(groups) < 2 else "all but one are bounds."
    )]  # fmt: skip


def _limits(compared: Mapping[str, Any]) -> list[str]:
    found = [*LIMITS]
    if any(test["seeds"] == 1 for test in compared["tests"]):
        found.append(ONE_SEED)
    bounds = [group["label"] for group in compared["groups"] if group["is_bound"]]
    if bounds:
        found.append(BOUNDS.format(names=listed(bounds)))
    if compared["also_differ_in"]:
        places = listed(list(compared["also_differ_in"]), most=12)
        found.append(f"The runs differ in more than the method, which may explain it: {places}.")
    return found


def difference_rows(tests: Sequence[Any]) -> dict[str, Any]:
    """Return the differences of macro-AUC in points, with the places of a drawing in percent."""
    tested = [test for test in tests if test["macro_auc"]["value"] is not None]
    ends = [abs(test["macro_auc"][end] or 0) for test in tested for end in ("low", "high", "value")]
    limit = max([0.01, *ends])
    rows = []
    for test in tested:
        found = test["macro_auc"]
        low, at, high = (_place(found[end], -limit, limit) for end in ("low", "value", "high"))
        rows.append(
            {
                "one": test["one"],
                "other": test["other"],
                **_difference(found),
                "at": at,
                "bar": None if None in (low, high) else (low, round((high or 0) - (low or 0), 1)),
                "seeds": count(test["seeds"]),
                "patients": count(test["patients"]),
                "classes": count(found["classes"]),
            }
        )
    return {"rows": rows, "limit": f"{100 * limit:.1f}"}


def _difference(found: Mapping[str, Any]) -> dict[str, Any]:
    has_interval = found["low"] is not None and found["high"] is not None
    return {
        "value": _points(found["value"]),
        "interval": f"{_points(found['low'])} to {_points(found['high'])}" if has_interval else "",
        "p": [UNDEFINED if found[p] is None else f"{found[p]:.2g}" for p in ("p", "p_holm")],
        "ahead": found["ahead"] or "",
    }


def _points(value: float | None) -> str:
    return UNDEFINED if value is None else f"{100 * value:+.1f}"


def _place(value: float | None, low: float, high: float) -> float | None:
    return None if value is None else round(100 * (value - low) / (high - low), 1)


def _seed_strips(groups: Sequence[Any], metric: str, ahead: str | None) -> dict[str, Any]:
    """Return every seed's value as a place in percent between the ends of one scale."""
    summaries = [group["metrics"][metric] for group in groups]
    values = [each for summary in summaries for each in summary["values"] if each is not None]
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    margin = 0.05 * (high - low) or 0.01
    low, high = low - margin, high + margin
    rows = [
        {
            "name": group["label"],
            "star": STAR if ahead == group["label"] else "",
            "places": [_place(each, low, high) for each in summary["values"] if each is not None],
            "value": mean_and_deviation(summary),
            "seeds": listed([str(seed) for seed in group["seeds"]], most=10),
        }
        for group, summary in zip(groups, summaries)
    ]
    return {"rows": rows, "ends": [percent(low), percent(high)]}


def mean_and_deviation(summary: Mapping[str, Any]) -> str:
    """Return "81.2 ± 0.4", or the mean alone of one value; in percent."""
    spread = "" if summary["deviation"] is None else f" ± {percent(summary['deviation'])}"
    return f"{percent(summary['mean'])}{spread}"


def _class_rows(compared: Mapping[str, Any]) -> list[dict[str, Any]]:
    missing = {"mean": None, "deviation": None}
    return [
        {
            "name": named(name),
            "cells": [
                mean_and_deviation(group["classes"].get(name, missing))
                + (STAR if compared["class_ahead"].get(name) == group["label"] else "")
                for group in compared["groups"]
            ],
        }
        for name in compared["groups"][0]["classes"]
    ]


def _pair(test: Mapping[str, Any]) -> dict[str, Any]:
    defined = [(n, found) for n, found in test["classes"].items() if found["value"] is not None]
    ordered = sorted(defined, key=lambda each: 2.0 if each[1]["p"] is None else each[1]["p"])
    return {
        "name": f"{test['one']} − {test['other']}",
        "ahead": sum(found["ahead"] is not None for _, found in defined),
        "classes": len(defined),
        "rows": [{"name": named(name), **_difference(found)} for name, found in ordered[:MAX_ROWS]],
    }
