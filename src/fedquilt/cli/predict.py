"""``fedquilt predict``: predict the classes of images with a run's model."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    require_probability,
)
from fedquilt.reports.style import percent
from fedquilt.reports.tables import new_table

if TYPE_CHECKING:
    from fedquilt.runs.finished_run import Prediction, Run

Images = Annotated[list[Path], typer.Argument(metavar="IMAGE...", help="Image files.")]
Attention = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="Draw attention maps per class into this folder (head ladm only)."
    ),
]


def predict(
    run: RunPath,
    images: Images,
    client: Client = None,
    threshold: Threshold = None,
    device: Device = "cpu",
    attention: Attention = None,
    as_json: AsJson = False,
) -> None:
    """Show the probability of every class for every image, and which classes are present."""
    from fedquilt.runs.finished_run import read_run

    require_device(device)
    require_probability(threshold)
    finished = read_run(run)
    prediction = finished.predict(images, client=client, threshold=threshold, device=device)
    rows, pictures = prediction.rows(), []
    if attention is not None:
        pictures = _draw_attention(finished, images, prediction, attention, client, device)
    limit = finished.recipe.evaluation.threshold if threshold is None else threshold
    if as_json:
        drawn = {"pictures": [str(path) for path in pictures]} if pictures else {}
        print_json({"run": str(run), "threshold": limit, "predictions": rows, **drawn})
        return
    for image, of_image in groupby(rows, key=lambda row: row["image"]):
        results.print(Text(image, style="bold"), soft_wrap=True)
        results.print(_table(of_image))
    results.print(f"present: probability of at least {percent(limit)} %")
    for path in pictures:
        results.print(f"attention maps: {path}", markup=False, soft_wrap=True)


def _draw_attention(
    run: Run,
    images: list[Path],
    prediction: Prediction,
    folder: Path,
    client: str | None,
    device: str,
) -> list[Path]:
    from fedquilt.reports.attention_picture import save_attention_picture

    pixels = run.models.decode(images)
    maps = run.models.attention(pixels, client, device)
    drawn = []
    for number, (image, path) in enumerate(zip(pixels, images)):
        shares = prediction.probabilities[number].tolist()
        titles = [f"{name}: {percent(p)} %" for name, p in zip(prediction.classes, shares)]
        drawn.append(folder / f"{number + 1}-{path.stem}.png")  # two images may share a name
        save_attention_picture(image, maps[number], titles, drawn[-1])
    return drawn


def _table(rows: Iterable[dict[str, Any]]) -> Table:
    table = new_table(None, "class")
    table.add_column("probability (%)", justify="right")
    table.add_column("")
    for row in rows:
        verdict = Text("present", style="bold") if row["present"] else Text("absent", style="dim")
        table.add_row(Text(row["class"]), percent(row["probability"]), verdict)
    return table
