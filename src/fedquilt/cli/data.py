"""``fedquilt data``: look at own data before a study, and prepare published data sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedquilt.cli.data_prepare import prepare

if TYPE_CHECKING:
    from rich.console import Console

    from fedquilt.data.checking import CheckResult
    from fedquilt.data.problems import Problem

app = typer.Typer(help="Check own data; prepare published data.", no_args_is_help=True)
app.command()(prepare)


@app.callback()
def data() -> None:
    """Check own data; prepare published data."""


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(help="The folder of the images.")],
    labels: Annotated[Path, typer.Option(help="CSV: one row per image, 1, 0 or blank per class.")],
    image_column: Annotated[str, typer.Option(help="Column of the image names.")] = "image",
    site_column: Annotated[str | None, typer.Option(help="Column of the sites.")] = None,
    patient_column: Annotated[str | None, typer.Option(help="Column of the patients.")] = None,
    split_column: Annotated[str | None, typer.Option(help="Column of train, val, test.")] = None,
    classes: Annotated[
        str | None, typer.Option(help="Class names, with commas between; otherwise all columns.")
    ] = None,
    ignore_columns: Annotated[
        str | None, typer.Option(help="Columns to pass over, with commas between.")
    ] = None,
    uncertain: Annotated[
        str, typer.Option(help="What -1 means: ignore (not annotated), positive or negative.")
    ] = "ignore",
    label_names: Annotated[
        Path | None, typer.Option(help="TOML file that translates label names.")
    ] = None,
    size: Annotated[int, typer.Option(help="Pixels to which images are resized.")] = 224,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
    picture: Annotated[Path, typer.Option(help="Where to draw the annotation map.")] = Path(
        "annotation_map.png"
    ),
    no_picture: Annotated[bool, typer.Option("--no-picture", help="Draw no picture.")] = False,
    skip_images: Annotated[
        bool, typer.Option("--skip-images", help="Do not decode the images, only look for them.")
    ] = False,
) -> None:
    """Check images and labels; exit code 1 when something must be mended."""
    settings: dict[str, object] = {
        "folder": str(folder),
        "labels": str(labels),
        "image_column": image_column,
        "site_column": site_column,
        "patient_column": patient_column,
        "split_column": split_column,
        "classes": _names(classes),
        "ignore_columns": _names(ignore_columns) or (),
        "uncertain": uncertain,
        "label_names": None if label_names is None else str(label_names),
        "size": size,
    }
    result, drawn = _check(settings, skip_images, None if no_picture else picture)
    if as_json:
        typer.echo(json.dumps(result.to_dict() | {"picture": drawn and str(drawn)}, indent=2))
    else:
        _show(result, drawn)
    raise typer.Exit(1 if result.problems else 0)


def _names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _check(
    settings: dict[str, object], skip_images: bool, picture: Path | None
) -> tuple[CheckResult, Path | None]:
    from fedquilt.data.checking import CheckResult, bad_setting, check
    from fedquilt.data.sources.folder.load import Folder
    from fedquilt.errors import UserError

    try:
        result = check(Folder(**settings), open_images=not skip_images)  # type: ignore[arg-type]
    except UserError as error:
        return CheckResult(problems=(bad_setting(str(error)),)), None
    if picture is None or result.annotation_map is None:
        return result, None
    from fedquilt.reports.annotation_picture import save_annotation_picture

    try:
        save_annotation_picture(result.annotation_map, picture)
    except (OSError, ValueError) as error:
        found = bad_setting(f"the picture could not be written to {picture}: {error}")
        return result.with_problem(found), None
    return result, picture


def _show(result: CheckResult, drawn: Path | None) -> None:
    from rich.console import Console
    from rich.text import Text

    from fedquilt.reports.annotation_picture import annotation_table

    console = Console(highlight=False)
    if result.summary is not None:
        console.print(Text(result.summary.sentence()))
    if result.annotation_map is not None:
        console.print(annotation_table(result.annotation_map))
    for notice in result.notices:
        console.print(Text(f"notice: {notice}"))
    for warning in result.warnings:
        console.print(Text.assemble(("warning: ", "yellow"), warning))
    for problem in result.problems:
        _show_problem(console, problem)
    if drawn is not None:
        console.print(Text(f"annotation map drawn to {drawn}"))
    verdict = (
        Text("the data can be used", style="green")
        if not result.problems
        else Text(f"to be mended before use: {len(result.problems)}", style="bold red")
    )
    console.print(verdict)


def _show_problem(console: Console, problem: Problem) -> None:
    from rich.padding import Padding
    from rich.text import Text

    console.print(Text(f"problem: {problem.title} ({problem.count:,})", style="red"))
    for line in problem.lines(private=True):
        console.print(Padding(Text(line, style="red"), (0, 0, 0, 4)))
    console.print(Padding(Text(f"what to do: {problem.kind.advice}"), (0, 0, 0, 4)))
