"""``fedquilt data prepare``: decode a published data set once, so that runs start at once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedquilt.cli.console import Notes, say
from fedquilt.cli.options import DEFAULT_CACHE
from fedquilt.data.sources import SOURCES
from fedquilt.errors import UserError

if TYPE_CHECKING:
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

    from fedquilt.data.source import Source
    from fedquilt.recipe import with_overrides
    from fedquilt.registry import find
    from fedquilt.strict_reading import read

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
