"""``fedquilt attack``: what lying clients do to a recipe, without and with a robust rule."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fedquilt.cli.console import Notes, print_json, results, say
from fedquilt.cli.options import DEFAULT_CACHE, AsJson, Cache, Device, require_device
from fedquilt.core.errors import UserError, nearest
from fedquilt.recipes.catalogue import find_recipe

RULES = ("median", "trimmed", "krum", "centered-clip")


def attack(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A recipe file, or a name of `list recipes`.")
    ],
    name: Annotated[
        str, typer.Option("--attack", metavar="NAME", help="sign-flip, backdoor, ... (--list).")
    ] = "sign-flip",
    malicious: Annotated[int, typer.Option(help="How many clients lie.")] = 1,
    rule: Annotated[
        list[str] | None,
        typer.Option("--rule", help=f"Also under this rule: {', '.join(RULES)}. Repeatable."),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PLACE=VALUE", help="Change a setting of the recipe."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A new folder for the runs.")] = None,
    clean: Annotated[bool, typer.Option(help="Also train without an attack.")] = True,
    device: Device = "cpu",
    cache: Cache = DEFAULT_CACHE,
    as_json: AsJson = False,
) -> None:
    """Train a recipe with lying clients, and show what bounds and robust rules stop."""
    for each in rule or ():
        if each not in RULES:
            raise UserError(f"unknown rule {each!r}{nearest(each, RULES)}")
    require_device(device)
    from rich.table import Table

    from fedquilt.privacy.attacks import find_attack
    from fedquilt.recipes.recipe import read_recipe
    from fedquilt.reports.html.run_report import try_run_report
    from fedquilt.runs.attack_bench import BENCH_FILE, COLUMNS, WORDS, attack_bench

    path = find_recipe(recipe)
    folder = out or Path("runs") / f"attack-{path.stem}-{name}"
    with Notes():
        cells = attack_bench(
            read_recipe(path, changes or ()),
            folder,
            attack=find_attack(name),
            malicious=malicious,
            rules=tuple(rule or ()),  # type: ignore[arg-type]
            cache=cache,
            device=device,
            clean=clean,
        )
    for finished in sorted(folder.glob("*/result.json")):
        try_run_report(finished.parent)
    if as_json:
        print_json({"folder": str(folder), "cells": [asdict(cell) for cell in cells]})
        return
    table = Table(title=f"{name}, {malicious} of the clients")
    for column in COLUMNS:
        table.add_column(column)
    for cell in cells:
        table.add_row(*cell.row())
    results.print(table)
    say(WORDS)
    say(f"runs and {BENCH_FILE}: {folder}")
