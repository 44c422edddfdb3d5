"""``fedquilt predict``: predict the classes of images with a run's model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from fedquilt.cli.console import Notes, note, print_json, results, say
from fedquilt.cli.decision_options import GivenThresholds, given_thresholds
from fedquilt.cli.drawn_maps import DrawnMaps, most_likely
from fedquilt.cli.options import (
    AsJson,
    Client,
    Device,
    RunPath,
    Which,
    require_device,
)
from fedquilt.core.errors import UserError
from fedquilt.core.version import VERSION
from fedquilt.core.wording import counted
from fedquilt.reports.best_and_worst import fill
from fedquilt.reports.style import UNDEFINED, percent
from fedquilt.reports.tables import new_table

if TYPE_CHECKING:
    from fedquilt.reports.prediction_file import PredictionFile
    from fedquilt.runs.predictions import FileBatch
    from fedquilt.runs.trained_models import TrainedModels

MANY = 20  # so many errors are listed, the others counted
UNLIKE = "unlike the training images, by its {}: the numbers below may not hold for it"

Images = Annotated[
    list[str],
    typer.Argument(
        metavar="IMAGE...",
        help="Image files, folders (also DICOM series), globs, or CSV files of paths.",
    ),
]
Out = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write FILE.csv, FILE.json or FILE.jsonl.")
]
Explain = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Draw a heat map per class (Grad-CAM) over every image into this folder.",
    ),
]
Attention = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="Draw attention maps per class into this folder (head ladm only)."
    ),
]


def predict(
    run: RunPath,
    images: Images,
    out: Out = None,
    client: Client = None,
    model: Which = None,
    threshold: GivenThresholds = None,
    device: Device = "cpu",
    explain: Explain = None,
    attention: Attention = None,
    as_json: AsJson = False,
) -> None:
    """Show the probability of every class for every image, and which classes are present.

    A file that cannot be read does not stop the others; the exit code is then 1.
    """
    from fedquilt.data.images.listing import list_images
    from fedquilt.runs.predictions import predict_files
    from fedquilt.runs.trained_models import open_models

    require_device(device)
    given = given_thresholds(threshold)
    if out is not None and as_json:
        raise UserError("--out writes a file and --json prints; give one of them")
    models = open_models(run, model)
    with Notes():
        facts = _facts(models, client, given)
    target = _target(out, facts)
    listing = list_images(images)
    for line in listing.notes:
        note(line)
    batches = predict_files(models, listing.paths, client=client, threshold=given, device=device)
    drawing = DrawnMaps(models, client, device, explain, attention)
    shown = _Shown(to_screen=out is None and not as_json, keep=as_json)
    try:
        with target as file:
            for batch in batches:
                shown.add(batch, file)
                shown.pictures += drawing.draw(batch)
    except KeyboardInterrupt:
        if out is not None:
            say(f"stopped; what was predicted so far is in {out}.partial")
        raise
    if as_json:
        drawn = {"pictures": [str(path) for _, path in shown.pictures]} if shown.pictures else {}
        print_json({"run": str(run), **facts, "predictions": shown.rows, **drawn})
    else:
        shown.finish(models.classes, out)
    shown.report_unlike(models.card, len(listing.paths))
    shown.report_errors(len(listing.paths))


def _facts(
    models: TrainedModels, client: str | None, given: Mapping[str | None, float]
) -> dict[str, Any]:
    """What traces a prediction back to its model."""
    from fedquilt.runs.fitted_decisions import stored_decisions

    entries = stored_decisions(models.card, models.model_name(client))
    rule = entries.get("thresholds", {}).get("rule", "fixed")
    by_hand = {name: number for name, number in given.items() if name is not None}
    return {
        "model": models.hash_of(client),
        "fedquilt": VERSION,
        "rule": "fixed" if None in given else rule,
        "threshold": given.get(None, models.card["threshold"]),
        **({"given_thresholds": by_hand} if by_hand else {}),
    }


def _target(
    out: Path | None, facts: dict[str, Any]
) -> AbstractContextManager[PredictionFile | None]:
    if out is None:
        return nullcontext()
    from fedquilt.reports.prediction_file import prediction_file

    return prediction_file(out, facts)


@dataclass
class _Shown:
    """What is shown of the batches as they come, and what is reported at the end."""

    to_screen: bool
    keep: bool  # the rows, to print them as JSON
    rows: list[dict[str, Any]] = field(default_factory=list)
    pictures: list[tuple[str, Path]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    decided: Counter[tuple[str, str]] = field(default_factory=Counter)
    threshold: float | None = None  # if all classes have the same
    unlike: int = 0  # images that are unlike the training images

    def add(self, batch: FileBatch, file: PredictionFile | None) -> None:
        for image, rows, error in batch.rows():
            if error is not None:
                self.errors.append(f"{image}: {error}")
            if self.keep:
                self.rows += rows or [{"image": image, "error": error}]
            if self.to_screen and rows:
                results.print(Text(image, style="bold"), soft_wrap=True)
                if _is_unlike(rows):
                    results.print(Text(UNLIKE.format(rows[0]["unlike_training"]), style="yellow"))
                results.print(_table(rows))
                self.threshold = _one_threshold(rows)
            if file is not None:
                file.add(image, rows, error)
            self.decided.update((row["class"], row["decision"]) for row in rows)
            self.unlike += _is_unlike(rows)

    def finish(self, classes: Iterable[str], out: Path | None) -> None:
        if self.threshold is not None:
            results.print(f"present: probability of at least {percent(self.threshold)} %")
        if out is not None:
            results.print(_counts(classes, self.decided))
            results.print(Text(f"written: {out}"), soft_wrap=True)
        for what, path in self.pictures:
            results.print(f"{what}: {path}", markup=False, soft_wrap=True)

    def report_unlike(self, card: Mapping[str, Any], count: int) -> None:
        alarms = card.get("unlike_training", {}).get("false_alarms")
        if not self.unlike or alarms is None:
            return
        note(
            f"unlike the training images: {self.unlike} of {counted(count, 'image')}; of the run's "
            f"own test images {percent(alarms['share'])} % were flagged, {alarms['flagged']} of "
            f"{alarms['images']}"
        )

    def report_errors(self, count: int) -> None:
        if not self.errors:
            return
        say(f"{len(self.errors)} of {counted(count, 'image')} could not be predicted:")
        for line in self.errors[:MANY]:
            say(f"  {line}")
        if len(self.errors) > MANY:
            say(f"  and {len(self.errors) - MANY} more; --out FILE lists them all")
        raise typer.Exit(1)


def _is_unlike(rows: list[dict[str, Any]]) -> bool:
    """Whether an image is flagged; rows are empty for a file that could not be read."""
    return bool(rows) and rows[0]["unlike_training"] not in (None, "no")


def _table(rows: list[dict[str, Any]]) -> Table:
    table = new_table(None, "class")
    shown = ["probability"]
    shown += ["calibrated"] * any(row["calibrated"] is not None for row in rows)
    shown += ["threshold"] * (_one_threshold(rows) is None)
    for name in shown:
        table.add_column(f"{name} (%)", justify="right")
    table.add_column("")
    styles = {"present": "bold", "absent": "dim"}
    likely = most_likely(rows)
    for row in likely:
        verdict = Text(row["decision"], style=styles.get(row["decision"], "italic"))
        table.add_row(Text(row["class"]), *(percent(row[name]) for name in shown), verdict)
    if len(rows) > len(likely):
        more = f"... {len(rows) - len(likely):,} less probable, with --out FILE"
        table.add_row(Text(more, style="dim"))
    return table


def _one_threshold(rows: list[dict[str, Any]]) -> float | None:
    """The threshold of all classes that are judged; None if they differ."""
    limits = {row["threshold"] for row in rows if row["threshold"] is not None}
    return limits.pop() if len(limits) == 1 else None


def _counts(classes: Iterable[str], decided: Counter[tuple[str, str]]) -> Table:
    table = new_table("Images", "class")
    words = ("present", "absent", "not judged")
    for word in words:
        table.add_column(word, justify="right")

    def cells(name: str) -> list[str | Text]:
        return [Text(name), *(f"{decided[name, word] or UNDEFINED}" for word in words)]

    fill(table, [*classes], cells, lambda name: decided[name, "present"], "in the file")
    return table
