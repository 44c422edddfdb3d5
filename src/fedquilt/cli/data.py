"""``fedquilt data``: check own data, and prepare published datasets."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedquilt.cli import own_data
from fedquilt.cli.console import Notes, SafeConsole, say
from fedquilt.cli.options import DEFAULT_CACHE
from fedquilt.core.errors import UserError
from fedquilt.core.registry import find
from fedquilt.core.wording import counted
from fedquilt.data.sources import SOURCES

if TYPE_CHECKING:
    from rich.console import Console

    from fedquilt.data.checks.folder import CheckResult
    from fedquilt.data.problems import Problem
    from fedquilt.data.source import Source, Splits

app = typer.Typer(help="Check own data; prepare published data.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="A name of `fedquilt list datasets`.")]
From = Annotated[Path, typer.Option("--from", help="Folder with the published files.")]
To = Annotated[Path, typer.Option("--to", help="The cache folder, for runs with --cache.")]
Partial = Annotated[
    bool, typer.Option("--partial", help="Leave missing images out, and count them.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting of the dataset, as in a recipe."),
]


@app.callback()
def data() -> None:
    """Check own data; prepare published data."""


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(help="The folder with the images.")],
    labels: Annotated[
        Path, typer.Option(help="CSV file: one row per image; 1, 0 or blank per class.")
    ],
    image_column: Annotated[str, typer.Option(help="Column with the image names.")] = "image",
    site_column: Annotated[str | None, typer.Option(help="Column with the sites.")] = None,
    patient_column: Annotated[str | None, typer.Option(help="Column with the patients.")] = None,
    split_column: Annotated[
        str | None, typer.Option(help="Column with train, val or test.")
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="Class names, separated by commas. Default: all columns.")
    ] = None,
    ignore_columns: Annotated[
        str | None, typer.Option(help="Columns to ignore, separated by commas.")
    ] = None,
    uncertain: Annotated[
        str, typer.Option(help="Meaning of -1: ignore (unannotated), positive or negative.")
    ] = "ignore",
    label_names: Annotated[
        Path | None, typer.Option(help="TOML file that maps label names to class names.")
    ] = None,
    size: Annotated[
        int, typer.Option(help="Width and height of the resized images.")
    ] = own_data.DEFAULT_SIZE,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON.")] = False,
    picture: Annotated[
        Path | None,
        typer.Option(help="File for the annotation map. Default: a new annotation_map.png."),
    ] = None,
    no_picture: Annotated[bool, typer.Option("--no-picture", help="Draw no picture.")] = False,
    skip_images: Annotated[
        bool, typer.Option("--skip-images", help="Only check that image files exist.")
    ] = False,
) -> None:
    """Check images and labels; the exit code is 1 if a problem must be fixed."""
    options = own_data.FolderOptions(
        data=folder,
        labels=labels,
        image_column=image_column,
        site_column=site_column,
        patient_column=patient_column,
        split_column=split_column,
        classes=classes,
        ignore_columns=ignore_columns,
        uncertain=uncertain,
        label_names=label_names,
    )
    settings = options.with_recognised_columns().source_settings() | {"size": size}
    drawing = None if no_picture else picture or _free_name(Path("annotation_map.png"))
    result, drawn = _check(settings, skip_images, drawing)
    if as_json:
        typer.echo(json.dumps(result.to_dict() | {"picture": drawn and str(drawn)}, indent=2))
    else:
        _show(result, drawn)
    raise typer.Exit(1 if result.problems else 0)


def _free_name(path: Path) -> Path:
    """The path, with a number if there is such a file already: it may be somebody's picture."""
    free, number = path, 2
    while free.exists():
        free = path.with_stem(f"{path.stem}-{number}")
        number += 1
    return free


def _check(
    settings: dict[str, Any], skip_images: bool, picture: Path | None
) -> tuple[CheckResult, Path | None]:
    from fedquilt.core.settings import read
    from fedquilt.core.tree import without
    from fedquilt.data.checks.folder import CheckResult, bad_setting, check
    from fedquilt.data.sources.folder.load import Folder

    try:
        source: Folder = read(Folder, without(settings, "name"), "data", {})
        result = check(source, open_images=not skip_images)
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
    from rich.text import Text

    from fedquilt.reports.annotation_picture import annotation_table

    console = SafeConsole(highlight=False)
    if result.summary is not None:
        console.print(Text(result.summary.sentence()))
    if result.annotation_map is not None:
        console.print(annotation_table(result.annotation_map))
    for notice in result.notices:
        console.print(Text(f"notice: {notice}"), soft_wrap=True)
    for warning in result.warnings:
        console.print(Text.assemble(("warning: ", "yellow"), warning), soft_wrap=True)
    for problem in result.problems:
        _show_problem(console, problem)
    if drawn is not None:
        console.print(Text(f"annotation map written to {drawn}"))
    verdict = (
        Text("the data can be used", style="green")
        if not result.problems
        else Text(f"problems to fix before use: {len(result.problems)}", style="bold red")
    )
    console.print(verdict)


def _show_problem(console: Console, problem: Problem) -> None:
    from rich.text import Text

    title = Text(f"problem: {problem.title} ({problem.count:,})", style="red")
    lines = [Text(f"    {line}", style="red") for line in problem.lines(private=True)]
    for text in (title, *lines, Text(f"    what to do: {problem.kind.advice}")):
        console.print(text, soft_wrap=True)  # paths stay whole, to be copied


@app.command()
def prepare(
    name: Name,
    folder: From,
    to: To = DEFAULT_CACHE,
    settings: Set = None,
    partial: Partial = False,
) -> None:
    """Decode a published dataset into the cache."""
    source = _source(name, folder, [*(settings or []), *_partly(name, partial)])
    started = time.perf_counter()
    try:
        with Notes():
            splits = source.load(to)
    except KeyboardInterrupt:
        say("stopped; run the same command again to continue")
        raise typer.Exit(130) from None
    _report(name, splits, to, time.perf_counter() - started)
    if splits.missing_images:
        say(f"this is a part of {name}; recipes that use it need data.{_partly(name, True)[0]}")


def _partly(name: str, partial: bool) -> list[str]:
    """Return the setting that leaves missing images out."""
    if not partial:
        return []
    setting: str | None = getattr(find("data source", SOURCES, name), "goes_on_with", None)
    if setting is None:
        raise UserError(f"--partial: {name!r} does not come as single image files; leave it out")
    return [setting]


def _source(name: str, folder: Path, overrides: list[str]) -> Source:
    """Return the source that a recipe's ``data`` table with these settings gives."""
    from dataclasses import fields

    from fedquilt.core.settings import read
    from fedquilt.data.source import Source
    from fedquilt.recipes.recipe import with_overrides

    kind = find("data source", SOURCES, name)
    if "folder" not in {field.name for field in fields(kind)}:
        raise UserError(f"{name!r} is generated without files; there is nothing to prepare")
    given: dict[str, Any] = {"name": name, "folder": str(folder)}
    try:
        source: Source = read(
            Source, with_overrides(given, overrides), "data", {Source: ("data source", SOURCES)}
        )
    except UserError as error:
        error.add_note("settings: --set KEY=VALUE; see `fedquilt list datasets --verbose`")
        raise
    return source


def _report(name: str, splits: Splits, to: Path, seconds: float) -> None:
    train, test = splits.train, splits.test
    channels, height, width = train.images.shape[1:]
    colour = "grey" if channels == 1 else "colour"
    say(
        f"{name}: {len(train):,} training and {len(test):,} test images of {height} x {width} px, "
        f"{colour}, {counted(len(train.classes), 'class', 'classes')}; in {to} after "
        f"{seconds:.1f} s"
    )
    if to != DEFAULT_CACHE:
        say(f"use it in runs with --cache {to}")
