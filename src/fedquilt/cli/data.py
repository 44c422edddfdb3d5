"""``fedquilt data``: check own data before a study, and prepare published data sets."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedquilt.cli.console import Notes, say
from fedquilt.cli.options import DEFAULT_CACHE
from fedquilt.core.errors import UserError
from fedquilt.data.sources import SOURCES

if TYPE_CHECKING:
    from rich.console import Console

    from fedquilt.data.checks.folder import CheckResult
    from fedquilt.data.problems import Problem
    from fedquilt.data.source import Source, Splits

Name = Annotated[str, typer.Argument(help="A name of `fedquilt list datasets`.")]
From = Annotated[Path, typer.Option("--from", help="Folder of the published files.")]
To = Annotated[Path, typer.Option("--to", help="The cache; runs take it by --cache.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting of the data set, as in a recipe."),
]


def prepare(name: Name, folder: From, to: To = DEFAULT_CACHE, settings: Set = None) -> None:
    """Decode a data set into the cache; wrong or missing files are named."""
    source = _source(name, folder, settings or [])
    started = time.perf_counter()
    try:
        with Notes():
            splits = source.load(to)
    except KeyboardInterrupt:
        say("stopped; nothing half-made will be used: give the same command again to go on")
        raise typer.Exit(130) from None
    _tell(name, splits, to, time.perf_counter() - started)


def _source(name: str, folder: Path, overrides: list[str]) -> Source:
    """The source as a recipe's ``data`` table would give it."""
    from dataclasses import fields

    from fedquilt.core.registry import find
    from fedquilt.core.settings import read
    from fedquilt.data.source import Source
    from fedquilt.recipes.recipe import with_overrides

    kind = find("data source", SOURCES, name)
    if "folder" not in {field.name for field in fields(kind)}:
        raise UserError(f"{name!r} is made without files: there is nothing to prepare")
    given: dict[str, Any] = {"name": name, "folder": str(folder)}
    try:
        source: Source = read(
            Source, with_overrides(given, overrides), "data", {Source: ("data source", SOURCES)}
        )
    except UserError as error:
        error.add_note(
            "settings: --set KEY=VALUE; `fedquilt list datasets --verbose` explains them"
        )
        raise
    return source


def _tell(name: str, splits: Splits, to: Path, seconds: float) -> None:
    train, test = splits.train, splits.test
    channels, height, width = train.images.shape[1:]
    colour = "grey" if channels == 1 else "colour"
    say(
        f"{name}: {len(train):,} training and {len(test):,} test images of {height} x {width} px, "
        f"{colour}, {len(train.classes)} classes; in {to} after {seconds:.1f} s"
    )
    if to != DEFAULT_CACHE:
        say(f"runs find them with --cache {to}")


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
    from fedquilt.core.errors import UserError
    from fedquilt.data.checks.folder import CheckResult, bad_setting, check
    from fedquilt.data.sources.folder.load import Folder

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
