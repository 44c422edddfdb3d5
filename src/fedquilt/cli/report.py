"""``fedquilt report``: a run as one HTML file that can be read without fedquilt."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedquilt.cli.console import print_json, say
from fedquilt.cli.options import AsJson

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A finished run folder.")]
Out = Annotated[Path | None, typer.Option(help="The HTML file. Default: report.html in the run.")]
CardFile = Annotated[
    Path | None,
    typer.Option("--card", help="TOML with intended use, ethics and the like; kept in the run."),
]


def report(run: Run, out: Out = None, card: CardFile = None, as_json: AsJson = False) -> None:
    """Write a run as one HTML file, and its model card beside it."""
    from fedquilt.reports.html.card import read_card
    from fedquilt.reports.html.run_report import write_run_report

    written = write_run_report(run, out, None if card is None else read_card(card))
    if as_json:
        print_json({"written": [str(path) for path in written]})
        return
    for path in written:
        say(f"{path} ({path.stat().st_size / 1000:,.0f} kB)")
