"""``fedquilt export``: a run's model in a format that other software reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from fedquilt.cli.console import Notes, note, say
from fedquilt.cli.options import Client, RunPath, Which
from fedquilt.core.errors import UserError

if TYPE_CHECKING:
    from fedquilt.runs.trained_models import TrainedModels

Format: TypeAlias = Literal["onnx", "torchscript", "monai", "hf"]
LEAK = "weights can leak training data: give this file away only where the study's policy allows it"

FormatOption = Annotated[
    Format,
    typer.Option("--format", help="onnx, torchscript, monai (bundle) or hf (hub folder)."),
]
Out = Annotated[Path, typer.Option(help="The file, or the folder for monai and hf.")]


def export(
    run: RunPath, format_: FormatOption, out: Out, client: Client = None, model: Which = None
) -> None:
    """Export a run's model; every file is compared with torch before it gets its name."""
    from fedquilt.runs.export.comparison import BATCHES
    from fedquilt.runs.trained_models import open_models

    models = open_models(run, model)
    if out.exists():
        raise UserError(f"{out} already exists; give another --out, or remove it first")
    with Notes():
        difference = _export(models, format_, out, client)
    if difference is not None:
        batches = ", ".join(map(str, BATCHES))
        say(f"largest difference to torch: {difference:.2g}, at batches of {batches}")
    say(f"written: {out}")
    if out.is_dir():
        say(f"use it: fedquilt predict {out} IMAGE...")
    note(LEAK)


def _export(models: TrainedModels, format_: Format, out: Path, client: str | None) -> float | None:
    """Return the largest difference to torch; None if the weights are copied as they are."""
    from fedquilt.runs.export.deployable import to_export
    from fedquilt.runs.export.hub_folder import export_hub
    from fedquilt.runs.export.monai_bundle import export_monai
    from fedquilt.runs.export.onnx_file import export_onnx
    from fedquilt.runs.export.torchscript_file import export_torchscript

    if format_ == "hf":
        export_hub(models, client, out)
        return None
    if format_ == "monai":
        return export_monai(models, client, out)
    write = export_onnx if format_ == "onnx" else export_torchscript
    return write(to_export(models, client), out)
