"""Section on the data: who has how many images, and who annotated what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedquilt.reports.html.findings import FEW
from fedquilt.reports.html.formatting import count
from fedquilt.reports.html.run_files import RunFiles

MAX_SITES = 10  # side by side in the annotation map
MAX_CELLS = 1200  # of the annotation map; with more, totals per class are shown
SPLITS = {"train": "training", "validation": "validation", "test": "test"}


def data_section(run: RunFiles) -> dict[str, Any]:
    """Return the splits and the annotation map, as rows of text."""
    facts, classes = run.data, run.classes
    return {
        "splits": _split_rows(facts),
        "patients_in_both": facts.get("patients_in_both"),
        "names_patients": any(
            each["patients"] is not None for each in facts.get("splits", {}).values()
        ),
        "is_study": run.is_study,
        "has_counts": bool(facts),
        "few": FEW,
        **_annotation_map(run, classes),
        "rules": _rules(run),
    }


def _split_rows(facts: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for name, words in SPLITS.items():
        split = facts.get("splits", {}).get(name)
        if split is not None:
            positives = [each for each in split["positives"] if each is not None]
            rows.append(
                {
                    "split": words,
                    "images": count(split["images"]),
                    "patients": count(split["patients"]),
                    "annotated": count(sum(split["annotated"])),
                    "positives": count(sum(positives)),
                    "fewest": count(min(positives, default=None)),
                }
            )
    return rows


def _annotation_map(run: RunFiles, classes: Sequence[str]) -> dict[str, Any]:
    sites = list(run.annotated)
    counts = {each["name"]: each for each in run.data.get("sites", ())}
    if len(sites) > MAX_SITES or len(sites) * len(classes) > MAX_CELLS:
        return {"matrix": None, "totals": _totals(run, classes), "sites": sites}
    columns = [
        {
            "name": site,
            "images": count(counts[site]["images"]) if site in counts else None,
            "patients": count(counts[site]["patients"])
            if site in counts and counts[site]["patients"] is not None
            else None,
        }
        for site in sites
    ]
    rows = [
        {
            "name": name,
            "cells": [_cell(run.annotated[site][place], counts.get(site), place) for site in sites],
        }
        for place, name in enumerate(classes)
    ]
    return {"matrix": rows, "columns": columns, "totals": None, "sites": sites}


def _cell(annotates: bool, site: dict[str, Any] | None, place: int) -> dict[str, Any]:
    if not annotates:
        return {"kind": "none", "text": "–", "shade": 0}
    if site is None:
        return {"kind": "yes", "text": "annotated", "shade": 30}
    positive, known = site["positives"][place], site["annotated"][place]
    return {
        "kind": "few" if positive < FEW else "yes",
        "text": f"{positive:,} / {known:,}",
        "shade": round(10 + 35 * known / max(site["images"], 1)),
    }


def _totals(run: RunFiles, classes: Sequence[str]) -> list[dict[str, Any]]:
    trained = run.data.get("splits", {}).get("train", {})
    return [
        {
            "name": name,
            "sites": f"{len(run.annotators[name])} of {len(run.annotated)}",
            "positives": count(trained["positives"][place] if trained else None),
            "annotated": count(trained["annotated"][place] if trained else None),
        }
        for place, name in enumerate(classes)
    ]


def _rules(run: RunFiles) -> list[tuple[str, str]]:
    """Return the settings that decide who holds and who annotates what."""
    rules = []
    for name, words in (("partition", "who holds what"), ("annotation", "who annotates what")):
        settings = dict(run.recipe.get(name, {}))
        if settings:
            rule = str(settings.pop("name", ""))
            details = ", ".join(
                f"{key.replace('_', ' ')} {value}" for key, value in settings.items()
            )
            rules.append((words, f"{rule} ({details})" if details else rule))
    return rules
