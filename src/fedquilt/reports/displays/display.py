"""A display as plain data and as files: NAME.json with all numbers and NAME.png."""

from __future__ import annotations

import csv
import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from fedquilt.core.atomic_files import write_json
from fedquilt.core.errors import UserError
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.recipes.papers.displays import Display, Kind
from fedquilt.recipes.recipe import Recipe
from fedquilt.reports.displays import charts, sheets
from fedquilt.runs.class_features import (
    ClassFeatures,
    class_features,
    cosines,
    plane,
    some_test_images,
)
from fedquilt.runs.displayed_counts import beside, client_counts, distance, some_images
from fedquilt.runs.environment import environment
from fedquilt.runs.finished_run import Run

POINTS = 2500  # of t-SNE: seconds to a minute
TEST_IMAGES = 2000  # whose features are looked at
CANVASES = 8  # with each number of labels
SHEET = 6  # images of a sheet of attention maps

Facts = dict[str, Any]


@dataclass(frozen=True)
class Trained:
    """What is drawn: finished runs by their label, and the test images."""

    display: Display
    runs: Mapping[str, Run]
    test: MultiLabelDataset
    device: str

    @property
    def classes(self) -> tuple[str, ...]:
        return self.test.classes

    @cached_property
    def features(self) -> dict[str, ClassFeatures]:
        data = some_test_images(self.test, TEST_IMAGES)
        return {
            label: class_features(run.models, data, None, self.device)
            for label, run in self.runs.items()
        }


def draw_untrained(
    display: Display, recipes: Mapping[str, Recipe], cache: Path, picture: Path
) -> Facts:
    """Draw what needs no training; ``recipes`` has one for each column, by its label."""
    first = next(iter(recipes.values()))
    if display.kind == "canvases":
        found = some_images(first.data.load(cache).train, CANVASES)
        sheets.save_canvases(found["images"], found["labels"], picture)
        return {"ids": found["ids"], "labels": found["labels"]}
    columns = {label: client_counts(recipe, cache) for label, recipe in recipes.items()}
    if display.kind == "holdings":
        charts.save_holdings(columns, picture)
        return {"columns": columns}
    counts = columns[next(iter(recipes))]
    paper = beside(counts, display.counts())
    charts.save_positives(counts, paper, picture)
    return {"ours": counts, "paper": paper, "distance": distance(counts["positives"], paper)}


def draw_trained(what: Trained, picture: Path) -> Facts:
    return _DRAWN[what.display.kind](what, picture)


def _embedding(what: Trained, picture: Path) -> Facts:
    planes = {label: plane(found, POINTS) for label, found in what.features.items()}
    charts.save_planes(planes, what.classes, picture)
    kinds = {label: found.per_class for label, found in what.features.items()}
    return {"feature_per_class": kinds, "classes": list(what.classes), "planes": planes}


def _cosines(what: Trained, picture: Path) -> Facts:
    count = len(what.classes)
    matrices = {label: cosines(found, count) for label, found in what.features.items()}
    charts.save_cosines(matrices, what.classes, picture)
    return {"classes": list(what.classes), "cosines": matrices}


def _attention(what: Trained, picture: Path) -> Facts:
    if len(what.runs) != 1:
        raise UserError(
            f"attention maps show one run, found {'; '.join(what.runs)}; choose one with --cells"
        )
    (run,) = what.runs.values()
    test = what.test
    several = torch.nonzero(((test.labels == 1) & test.known).sum(1) >= 2).flatten()
    data = some_test_images(test.select(several) if len(several) else test, SHEET)
    maps = run.models.attention(data.images, None, what.device)
    labels = [
        [name for name, is_positive in zip(test.classes, row) if is_positive]
        for row in data.labels.tolist()
    ]
    shares = maps * maps.shape[2] * maps.shape[3]
    sheets.save_attention(data.images, shares, labels, test.classes, picture)
    return {"ids": list(data.ids), "labels": labels, "places": list(maps.shape[2:])}


def _by_annotators(what: Trained, picture: Path) -> Facts:
    metric, points = what.display.metric, []
    for label, run in what.runs.items():
        annotators = {name: len(clients) for name, clients in run.annotators.items()}
        (report,) = run.result["reports"].values()
        points += [
            {"run": label, "class": name, "annotators": annotators[name], "value": value}
            for name, value in zip(report["classes"], report["per_class"][metric])
        ]
    charts.save_by_annotators(points, metric.upper(), picture)
    return {"metric": metric, "points": points}


_DRAWN: Mapping[Kind, Callable[[Trained, Path], Facts]] = {
    "embedding": _embedding,
    "cosines": _cosines,
    "attention": _attention,
    "annotators": _by_annotators,
}


def write_display(display: Display, facts: Facts, *, data: str, command: str, out: Path) -> Path:
    """Write the numbers behind the picture; return the file."""
    path = out / f"{short_name(display)}.json"
    head = {"display": display.name, "title": display.title, "data": data, "command": command}
    write_json(path, {**head, "remarks": list(display.remarks), **facts})
    if "paper" in facts:
        _write_counts(display, facts, data, command, path.with_suffix(".csv"))
    return path


def _write_counts(display: Display, facts: Facts, data: str, command: str, path: Path) -> None:
    """A line for each client and class with a positive, in ours or in the paper."""
    ours, made = facts["ours"], environment("cpu")
    origin = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": command,
        "versions": f"fedquilt {made['fedquilt']}, numpy {made['numpy']}, Python {made['python']}",
    }
    with path.open("w", newline="", encoding="utf-8") as file:
        columns = ("table", "data", "client", "class", "ours", "published", *origin)
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        for place, (own, printed) in enumerate(zip(ours["positives"], facts["paper"])):
            for name, count, number in zip(ours["classes"], own, printed):
                if count or number:
                    client = {"client": chr(ord("A") + place), "class": name}
                    counts = {"ours": count, "published": round(number)}
                    row = {"table": display.name, "data": data, **client, **counts, **origin}
                    writer.writerow(row)


def short_name(display: Display) -> str:
    """``fig4`` of ``fednca-ml/fig4``: the name of its files."""
    return display.name.rpartition("/")[2]
