"""``fedquilt evaluate``: evaluate a run's model on its test images or on other data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedquilt.cli import own_data
from fedquilt.cli.console import Notes, print_json, results, say
from fedquilt.cli.options import (
    DEFAULT_CACHE,
    AsJson,
    Cache,
    Client,
    Device,
    RunPath,
    Threshold,
    require_device,
    require_probability,
)
from fedquilt.core.errors import UserError
from fedquilt.reports.style import deviation_or_none, mean_or_none, percent
from fedquilt.reports.tables import average_rows, average_table, class_rows, class_table

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
    threshold: Threshold = None,
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
    ignore_columns: own_data.IgnoreColumns = None,
    uncertain: own_data.Uncertain = "ignore",
    label_names: own_data.LabelNames = None,
) -> None:
    """Evaluate a run on its own test images, or on a folder with the same classes.

    With a split column the folder's test rows are used, otherwise all rows.
    """
    options = own_data.FolderOptions.of(locals())
    from fedquilt.runs.finished_run import read_run

    require_device(device)
    require_probability(threshold)
    finished = read_run(run)
    if keep_scores and (options.given() or client):
        raise UserError(
            "--keep-scores writes the scores of all of the run's models on its own test images; "
            "leave out --data and --client"
        )
    with Notes():
        datasets = _datasets(finished, options, cache)
    if keep_scores:
        say(f"scores: {finished.keep_scores(datasets[0], device=device)}")
    models = [client] if client or not finished.models.clients else finished.models.clients
    reports = {
        model or "global": finished.evaluate(
            datasets, client=model, threshold=threshold, device=device
        ).to_dict()
        for model in models
    }
    limit = finished.recipe.evaluation.threshold if threshold is None else threshold
    _show(finished, reports, sum(map(len, datasets)), limit, as_json=as_json)


def _datasets(
    finished: Run, options: own_data.FolderOptions, cache: Path
) -> list[MultiLabelDataset]:
    if not options.given():
        return [finished.recipe.data.load(cache).test]
    from fedquilt.core.settings import read
    from fedquilt.data.sources.folder.load import Folder

    decoding = finished.models.decoding
    settings = options.source_settings() | {
        "classes": finished.classes,
        "size": decoding.size,
        "channels": decoding.channels,
        "fit": decoding.fit,
        "window": decoding.window,
    }
    del settings["name"]
    source: Folder = read(Folder, settings, "data", {})
    splits = source.load(cache)
    return [splits.test] if options.split_column else [splits.train, splits.test]


def _show(
    finished: Run, reports: dict[str, Any], images: int, threshold: float, *, as_json: bool
) -> None:
    rows = class_rows(reports, finished.annotators)
    columns = {
        name: [report["averages"][name] for report in reports.values()]
        for name in next(iter(reports.values()))["averages"]
    }
    averages = {name: mean_or_none(values) for name, values in columns.items()}
    spread = {name: deviation_or_none(values) for name, values in columns.items()}
    if as_json:
        content = {"run": str(finished.path), "images": images, "threshold": threshold}
        print_json(content | {"classes": rows, "averages": averages, "reports": reports})
        return
    clients = len(finished.allocation.holdings)
    results.print(class_table(rows, averages, client_count=clients))
    results.print(average_table(average_rows(averages, spread)))
    results.print(f"{images:,} images; present: probability of at least {percent(threshold)} %")
