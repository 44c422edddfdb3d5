"""Comparison of runs; runs that differ only in their seeds form a group with mean and deviation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from fedquilt.core.errors import UserError, nearest
from fedquilt.reports.paired_tests import (
    MANY_CLASSES,
    SIGNIFICANT,
    Contender,
    ahead_of_all,
    paired_tests,
)
from fedquilt.reports.style import (
    SMALLER_IS_BETTER,
    UNDEFINED,
    deviation_or_none,
    mean_or_none,
    percent,
    title,
)
from fedquilt.reports.tables import new_table, with_interval
from fedquilt.runs.scores import scores_path

if TYPE_CHECKING:
    from fedquilt.runs.finished_run import Run

SEEDS = ("seed", "allocation_seed", "data.seed")
DEFAULT_METRICS = ("macro_auc", "map", "bacc")
SHORT_NAMES = {"auc": "macro_auc", "ap": "map", "f1": "macro_f1"}
CLASS_METRIC = "auc"
TESTED = "macro_auc"  # the average whose differences are tested
NOT_COMPARED = ("checkpoint_every",)  # changes no number
SHOWN_CLASSES = 4
AHEAD = "* significantly ahead of every other row (5 %, Holm)"


def compare(runs: Sequence[Run], metrics: Sequence[str] = DEFAULT_METRICS) -> dict[str, Any]:
    """Compare runs; return everything that the comparison tables show, as plain data."""
    groups = group_by_recipe(runs)
    metrics = [_metric(name, runs[0].result["metrics"]) for name in metrics]
    labels = labels_of([members[0] for members in groups])
    described = [
        _described_group(label, members, metrics) for label, members in zip(labels, groups)
    ]
    tests = paired_tests([contender_of(label, runs) for label, runs in zip(labels, groups)])
    rivals = [group["label"] for group in described if not group["is_bound"]]
    return {
        "metrics": metrics,
        "groups": described,
        "best": {metric: _best(described, metric) for metric in metrics},
        "ahead": {m: ahead_of_all(tests, rivals) if m == TESTED else None for m in metrics},
        "tests": [test.to_dict() for test in tests],
        "class_metric": CLASS_METRIC,
        "class_ahead": {
            name: ahead_of_all(tests, rivals, name) for name in described[0]["classes"]
        },
        "worst_classes": _worst_classes(described),
        "also_differ_in": _other_differences([members[0] for members in groups]),
    }


def _metric(name: str, known: Mapping[str, Any]) -> str:
    metric = SHORT_NAMES.get(name, name)
    if metric not in known:
        raise UserError(f"unknown metric {name!r}{nearest(name, known)}")
    return metric


def group_by_recipe(runs: Sequence[Run]) -> list[list[Run]]:
    """Group the runs whose recipes are equal except for seeds, in the order given."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        settings = {k: v for k, v in flat_settings(run.settings).items() if k not in SEEDS}
        groups.setdefault(json.dumps(settings, sort_keys=True), []).append(run)
    return list(groups.values())


def _described_group(label: str, runs: Sequence[Run], metrics: Sequence[str]) -> dict[str, Any]:
    per_class = [_per_class(run) for run in runs]
    return {
        "label": label,
        "is_bound": runs[0].is_bound,  # not ranked: it sees more labels
        "runs": [str(run.path) for run in runs],
        "seeds": [run.settings["seed"] for run in runs],
        "metrics": {m: _summary([run.result["metrics"][m] for run in runs]) for m in metrics},
        "classes": {
            name: _summary([values.get(name) for values in per_class]) for name in per_class[0]
        },
    }


def contender_of(label: str, runs: Sequence[Run]) -> Contender:
    """Return a row of runs that differ in their seeds only."""
    scores, counts = {}, {}
    for run in runs:
        flat = flat_settings(run.settings)
        seed = json.dumps([flat.get(place) for place in SEEDS])
        counts[seed] = _test_counts(run)
        if scores_path(run.path).exists():
            scores[seed] = run.scores
    return Contender(
        label=label,
        scores=scores,
        counts=counts,
        settings=_other_settings(runs[0]),
        is_bound=runs[0].is_bound,
    )


def _test_counts(run: Run) -> str | None:
    """Describe the test part of a run that may have kept no scores."""
    for report in run.result["reports"].values():
        per_class = report["per_class"]
        if "positives" in per_class:
            kinds = {kind: per_class[kind] for kind in ("positives", "negatives")}
            return json.dumps({"classes": list(run.classes), **kinds})
    return None


def _other_settings(run: Run) -> dict[str, str]:
    """Return the settings outside the method, since they may explain a result."""
    return {
        place: repr(value)
        for place, value in flat_settings(run.settings).items()
        if not place.startswith("method.") and place not in (*SEEDS, *NOT_COMPARED)
    }


def _per_class(run: Run) -> dict[str, float | None]:
    reports = run.result["reports"].values()
    columns = zip(*(report["per_class"][CLASS_METRIC] for report in reports))
    return {name: mean_or_none(column) for name, column in zip(run.classes, columns)}


def _summary(values: list[float | None]) -> dict[str, Any]:
    mean, deviation = mean_or_none(values), deviation_or_none(values)
    return {"mean": mean, "deviation": deviation, "values": values}


def _best(groups: Sequence[Mapping[str, Any]], metric: str) -> str | None:
    rivals = [group for group in groups if not group["is_bound"]]
    scored = [(group["metrics"][metric]["mean"], group["label"]) for group in rivals]
    defined = [(value, label) for value, label in scored if value is not None]
    if len(defined) < 2:
        return None
    choose = min if metric in SMALLER_IS_BETTER else max
    label: str = choose(defined, key=lambda pair: pair[0])[1]
    return label


def _worst_classes(groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the classes with the lowest mean over the groups, worst first."""
    means = {
        name: mean_or_none(group["classes"].get(name, {}).get("mean") for group in groups)
        for name in groups[0]["classes"]
    }
    defined = sorted((value, name) for name, value in means.items() if value is not None)
    return [name for _, name in defined[:SHOWN_CLASSES]]


def labels_of(runs: Sequence[Run]) -> list[str]:
    """Label groups by method, and by the settings that differ between groups of one method."""
    settings = [flat_settings(run.settings) for run in runs]
    labels = []
    for own in settings:
        same_method = [each for each in settings if each["method.name"] == own["method.name"]]
        differing = [
            f"{place.removeprefix('method.')}={own.get(place)}"
            for place in sorted(set().union(*same_method))
            if place not in SEEDS and len({repr(each.get(place)) for each in same_method}) > 1
        ]
        labels.append(" ".join([own["method.name"], *differing]))
    return labels


def _other_differences(runs: Sequence[Run]) -> list[str]:
    """Return the settings outside the method in which the runs differ."""
    settings = [_other_settings(run) for run in runs]
    return [
        place
        for place in sorted(set().union(*settings))
        if len({each.get(place) for each in settings}) > 1
    ]


def flat_settings(settings: Any, place: str = "") -> dict[str, Any]:
    if not isinstance(settings, Mapping):
        return {place: settings}
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        flat |= flat_settings(value, f"{place}.{key}" if place else key)
    return flat


def comparison_table(comparison: Mapping[str, Any]) -> Table:
    has_seeds = any(len(group["seeds"]) > 1 for group in comparison["groups"])
    over_seeds = ", mean ± standard deviation over seeds" if has_seeds else ""
    table = new_table(f"Comparison (%){over_seeds}", "method")
    table.add_column("seeds", justify="right")
    for metric in comparison["metrics"]:
        table.add_column(title(metric), justify="right")
    for group in comparison["groups"]:
        cells = [
            _cell(group["metrics"][metric], is_ahead=comparison["ahead"][metric] == group["label"])
            for metric in comparison["metrics"]
        ]
        table.add_row(Text(group["label"]), str(len(group["seeds"])), *cells)
    if any(comparison["ahead"].values()):
        bounds = any(group["is_bound"] for group in comparison["groups"])
        table.caption = AHEAD + (", not counting bounds with all labels" if bounds else "")
    return table


def difference_table(comparison: Mapping[str, Any]) -> Table | None:
    """Format the tests of the macro-AUC; None if no pair was tested."""
    tests = [test for test in comparison["tests"] if test["macro_auc"]["value"] is not None]
    if not tests:
        return None
    table = new_table("Differences of AUC (points, 95 % interval)", "first minus second")
    for name in ("difference", "p", "p (Holm)", "seeds", "patients", "classes"):
        table.add_column(name, justify="right")
    for test in tests:
        found = test["macro_auc"]
        p_values = (found["p"], found["p_holm"])
        table.add_row(
            Text(f"{test['one']} - {test['other']}"),
            with_interval(found["value"], found),
            *(UNDEFINED if p is None else f"{p:.2g}" for p in p_values),
            str(test["seeds"]),
            f"{test['patients']:,}",
            str(found["classes"]),
        )
    table.caption = "classes: those with at least 10 patients with and 10 without the finding"
    return table


def many_tests_sentence(tests: Sequence[Mapping[str, Any]]) -> str:
    """Say how small p must be where many classes are tested; empty for few."""
    count = sum(found["p"] is not None for test in tests for found in test["classes"].values())
    if count <= MANY_CLASSES:
        return ""
    return (
        f"{count:,} differences are tested per class, so Holm's first step needs a p below "
        f"{SIGNIFICANT / count:.2g}: no star does not mean no difference"
    )


def worst_class_table(comparison: Mapping[str, Any]) -> Table:
    """Format the hardest classes, one column each."""
    names, groups = comparison["worst_classes"], comparison["groups"]
    table = new_table(f"Hardest classes, {title(comparison['class_metric'])} (%)", "method")
    for name in names:
        table.add_column(Text(name), justify="right", overflow="fold")
    for group in groups:
        summaries = {name: group["classes"].get(name, _summary([])) for name in names}
        cells = [
            _cell(each, is_ahead=comparison["class_ahead"][name] == group["label"])
            for name, each in summaries.items()
        ]
        table.add_row(Text(group["label"]), *cells)
    if any(comparison["class_ahead"][name] for name in names):
        table.caption = AHEAD
    return table


def _cell(summary: Mapping[str, Any], *, is_ahead: bool) -> Text:
    deviation = summary["deviation"]
    spread = "" if deviation is None else f" ± {percent(deviation)}"
    mark = "* " if is_ahead else ""
    return Text(f"{mark}{percent(summary['mean'])}{spread}", style="bold" if is_ahead else "")
