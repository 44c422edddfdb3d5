"""What a run's model was worth on other people's data, as ``fedquilt evaluate`` found it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedquilt.core.wording import counted
from fedquilt.reports.html.formatting import count, listed, named, percent
from fedquilt.reports.html.run_files import RunFiles

METRICS = ("auc", "ap", "sensitivity", "specificity")


def other_data_section(run: RunFiles) -> list[dict[str, Any]]:
    """Return, for every evaluation on other data, sentences and a row per finding judged."""
    return [_evaluation(each) for each in run.evaluations]


def _evaluation(found: Mapping[str, Any]) -> dict[str, Any]:
    intervals = found["intervals"]
    rows = [
        {
            "name": named(name),
            "counts": [_count(intervals, kind, place) for kind in ("positive", "negative")],
            "estimates": [_cell(intervals["per_class"][metric], place) for metric in METRICS],
        }
        for place, name in enumerate(intervals["classes"])
        if intervals["positives"][place] + intervals["negatives"][place]
    ]
    macro = intervals["averages"]["macro_auc"]
    return {
        "title": f"{found['data']}, {found['labels']}",
        "sentences": _sentences(found, len(intervals["classes"])),
        "rows": rows,
        "names_patients": intervals["unit"] == "patient",
        "mean": _cell({key: [macro[key]] for key in ("value", "low", "high")}, 0),
        "averaged": macro["classes"],
    }


def _sentences(found: Mapping[str, Any], classes: int) -> list[str]:
    intervals = found["intervals"]
    patients = ""
    if intervals["unit"] == "patient":
        patients = f" of {counted(intervals['patients'], 'patient')}"
    sentences = [f"{counted(intervals['images'], 'image')}{patients}."]
    if missing := found["not_judged"]:
        sentences.append(
            f"{len(missing)} of {counted(classes, 'finding')} could not be judged, as nobody "
            f"annotated them there: {listed(missing)}."
        )
    left_out = found["trained_images_left_out"]
    if left_out is None:
        sentences.append("Whether the model was trained on some of these images is not known.")
    elif left_out:
        sentences.append(f"{counted(left_out, 'image')} that it was trained on were left out.")
    if found.get("model"):
        sentences.append(f"Model: {found['model']}.")
    return sentences


def _count(intervals: Mapping[str, Any], kind: str, place: int) -> str:
    images = count(intervals[f"{kind}s"][place])
    if intervals["unit"] != "patient":
        return images
    return f"{images} ({count(intervals[f'{kind}_patients'][place])})"


def _cell(columns: Mapping[str, Any], place: int) -> dict[str, str]:
    low, high = columns["low"][place], columns["high"][place]
    interval = "" if low is None else f"{percent(low)}–{percent(high)}"
    return {"value": percent(columns["value"][place]), "interval": interval}
