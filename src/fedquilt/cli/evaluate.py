"""``fedquilt evaluate``: evaluate a run's model on its test images or on other data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedquilt.cli import own_data
from fedquilt.cli.console import Notes, note, print_json, results, say
from fedquilt.cli.decision_options import GivenThresholds, given_thresholds
from fedquilt.cli.options import (
    DEFAULT_CACHE,
    AsJson,
    Cache,
    Client,
    Device,
    RunPath,
    Which,
    require_device,
)
from fedquilt.cli.run_report import show_decisions
from fedquilt.core.errors import UserError, nearest
from fedquilt.core.wording import counted
from fedquilt.reports.style import deviation_or_none, mean_or_none, percent
from fedquilt.reports.tables import (
    average_rows,
    average_table,
    class_rows,
    class_table,
    decision_table,
)

if TYPE_CHECKING:
    from fedquilt.data.dataset import MultiLabelDataset
    from fedquilt.runs.finished_run import Run


KeepScores = Annotated[
    bool,
    typer.Option(
        "--keep-scores",
        help="Also write the logits of the run's test images to RUN/scores/test.npz.",
    ),
]


def evaluate(
    run: RunPath,
    client: Client = None,
    model: Which = None,
    threshold: GivenThresholds = None,
    device: Device = "cpu",
    cache: Cache = DEFAULT_CACHE,
    keep_scores: KeepScores = False,
    as_json: AsJson = False,
    data: own_data.DataFolder = None,
    labels: own_data.LabelFile = None,
    image_column: own_data.ImageColumn = "image",
    site_column: own_data.SiteColumn = None,
    patient_column: own_data.PatientColumn = None,
    split_column: own_data.SplitColumn = None,
    classes: own_data.Classes = None,
    ignore_columns: own_data.IgnoreColumns = None,
    uncertain: own_data.Uncertain = "ignore",
    label_names: own_data.LabelNames = None,
) -> None:
    """Evaluate a run on its own test images, or on a folder with some or all of its classes.

    With a split column the folder's test rows are used, otherwise all rows. Classes without labels
    are not judged, and images that the model was trained on are left out.
    """
    options = own_data.FolderOptions.of(locals()).with_recognised_columns()
    from fedquilt.runs.finished_run import read_run

    require_device(device)
    given = given_thresholds(threshold)
    finished = read_run(run, model)
    if keep_scores and (options.given() or client or model):
        raise UserError(
            "--keep-scores writes the scores of all of the run's models on its own test images; "
            "leave out --data, --client and --model"
        )
    with Notes():
        served = finished.models.card.get("served", {})
        dataset, facts = _dataset(finished, options, cache)
        dataset = _restricted(dataset, own_data.names_of(classes))
    if keep_scores:
        say(f"scores: {finished.keep_scores(dataset, device=device)}")
    models = [client] if client or not finished.models.clients else finished.models.clients
    judged = {
        name or "global": finished.judge([dataset], client=name, threshold=given, device=device)
        for name in models
    }
    reports = {name: report.to_dict() for name, (report, _) in judged.items()}
    decisions = {name: found for name, (_, found) in judged.items()}
    intervals = {name: found.pop("intervals") for name, found in decisions.items()}
    limit = given.get(None, finished.evaluation.threshold)
    facts = {"images": len(dataset), **facts, "served": served, "threshold": limit}
    _show(finished, reports, decisions, intervals, facts, as_json=as_json)
    if data is not None and labels is not None and "global" in intervals:
        _keep(finished, data, labels, facts | {"intervals": intervals["global"]})


def _keep(finished: Run, data: Path, labels: Path, facts: dict[str, Any]) -> None:
    """Keep the numbers beside the run and write its report again; a study's site may not write."""
    from fedquilt.reports.html.run_report import try_run_report
    from fedquilt.runs.other_evaluations import keep_evaluation

    why = facts["served"].get("why", "") if facts["served"] else ""
    names = ("not_judged", "unknown_columns", "trained_images_left_out", "intervals")
    kept = {name: facts[name] for name in names} | {"model": why}
    try:
        path = keep_evaluation(finished.path, data, labels, kept)
    except OSError as error:
        note(f"the numbers are not kept for the run's report: {error}")
        return
    complaint = try_run_report(finished.path)
    note(complaint or f"kept for the run's report: {path}")


def _dataset(
    finished: Run, options: own_data.FolderOptions, cache: Path
) -> tuple[MultiLabelDataset, dict[str, Any]]:
    """Return the images to judge by, and facts about them for the output."""
    if options.given() in ([], ["--classes"]):
        return finished.source.load(cache).test, {}
    from fedquilt.core.settings import read
    from fedquilt.data.sources.folder.load import Folder
    from fedquilt.runs.other_data import load_other_data

    decoding = finished.models.decoding
    settings = options.source_settings() | {
        "size": decoding.size,
        "channels": decoding.channels,
        "fit": decoding.fit,
        "window": decoding.window,
    }
    del settings["name"], settings["classes"]  # all columns of the model's classes are read
    source: Folder = read(Folder, settings, "data", {})
    other = load_other_data(finished.path, source, finished.classes, cache)
    for warning in other.warnings():
        note(warning)
    return other.data, {
        "not_judged": list(other.not_judged.classes),
        "unknown_columns": list(other.not_judged.columns),
        "trained_images_left_out": other.trained_on,
    }


def _restricted(dataset: MultiLabelDataset, classes: Sequence[str] | None) -> MultiLabelDataset:
    """The data set with the labels of these classes only, if any are named."""
    if classes is None:
        return dataset
    for name in classes:
        if name not in dataset.classes:
            raise UserError(
                f"--classes: the run has no class {name!r}{nearest(name, dataset.classes)}"
            )
    import torch

    judged = torch.tensor([name in classes for name in dataset.classes])
    return replace(dataset, known=dataset.known & judged)


def _show(
    finished: Run,
    reports: dict[str, Any],
    decisions: dict[str, Any],
    intervals: dict[str, Any],
    facts: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    own = next(iter(intervals.values())) if len(intervals) == 1 else None
    rows = class_rows(reports, finished.annotators, own)
    threshold = facts["threshold"]
    columns = {
        name: [report["averages"][name] for report in reports.values()]
        for name in next(iter(reports.values()))["averages"]
    }
    averages = {name: mean_or_none(values) for name, values in columns.items()}
    spread = {name: deviation_or_none(values) for name, values in columns.items()}
    if as_json:
        content = {"run": str(finished.path), **facts, "classes": rows}
        content |= {"averages": averages, "reports": reports, "decisions": decisions}
        content["intervals"] = intervals
        print_json(content)
        return
    clients = len(finished.allocation.holdings)
    results.print(class_table(rows, averages, client_count=clients, intervals=own))
    if own is not None:
        results.print(decision_table(rows))
    results.print(average_table(average_rows(averages, spread)))
    for found in decisions.values() if len(decisions) == 1 else ():
        show_decisions(found, found["quality"])
    has_own = any("thresholds" in found for found in decisions.values())
    elsewhere = " where no other is given" if has_own else ""
    limit = f"present: probability of at least {percent(threshold)} %{elsewhere}"
    results.print(f"{counted(facts['images'], 'image')}; {limit}")
    if facts["served"]:
        results.print(f"model: {facts['served']['why']}", soft_wrap=True)
