"""``fedquilt predict``: what a run's model says about images."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from fedquilt.cli.console import print_json, results
from fedquilt.cli.options import (
    AsJson,
    Client,
    Device,
    RunPath,
    Threshold,
    require_device,
    require_share,
)
from fedquilt.reports.numbers import percent
from fedquilt.reports.tables import new_table

Images = Annotated[list[Path], typer.Argument(metavar="IMAGE...", help="Image files.")]


def predict(
    run: RunPath,
    images: Images,
    client: Client = None,
    threshold: Threshold = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Show for every image each class, its probability, and whether it counts as present."""
    from fedquilt.finished_run import read_run

    require_device(device)
    require_share(threshold)
    finished = read_run(run)
    rows = finished.predict(images, client=client, threshold=threshold, device=device).rows()
    limit = finished.recipe.evaluation.threshold if threshold is None else threshold
    if as_json:
        print_json({"run": str(run), "threshold": limit, "predictions": rows})
        return
    for image, of_image in groupby(rows, key=lambda row: row["image"]):
        results.print(Text(image, style="bold"), soft_wrap=True)
        results.print(_table(of_image))
    results.print(f"present: from a probability of {percent(limit)} % on")


def _table(rows: Iterable[dict[str, Any]]) -> Table:
    table = new_table(None, "class")
    table.add_column("probability (%)", justify="right")
    table.add_column("")
    for row in rows:
        verdict = Text("present", style="bold") if row["present"] else Text("absent", style="dim")
        table.add_row(Text(row["class"]), percent(row["probability"]), verdict)
    return table
