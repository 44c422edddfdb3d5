"""``fedquilt report``: runs as one HTML file that can be read without fedquilt."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fedquilt.cli.compare import beside
from fedquilt.cli.console import print_json, say
from fedquilt.cli.options import AsJson
from fedquilt.core.errors import UserError

Runs = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN...",
        help="A run folder, also of a study; several are compared. Or the folder of a sweep, of "
        "several seeds or of a reproduced table.",
    ),
]
Out = Annotated[
    Path | None, typer.Option(help="The HTML file. Default: in the folder, or beside the folders.")
]
CardFile = Annotated[
    Path | None,
    typer.Option("--card", help="TOML with intended use, ethics and the like; kept in the run."),
]
COMPARISON, TABLE = "comparison.json", "table.json"  # what other verbs leave in their folders


def report(runs: Runs, out: Out = None, card: CardFile = None, as_json: AsJson = False) -> None:
    """Write a run as one HTML file with its model card, or several runs as a comparison."""
    kept = {name: runs[0] / name for name in (COMPARISON, TABLE)}
    is_run = len(runs) == 1 and not any(path.exists() for path in kept.values())
    if card is not None and not is_run:
        raise UserError("a model card belongs to one run; leave out --card, or give one run")
    if is_run:
        from fedquilt.reports.html.card import read_card
        from fedquilt.reports.html.run_report import write_run_report

        written = write_run_report(runs[0], out, None if card is None else read_card(card))
    elif len(runs) == 1 and kept[TABLE].exists():
        from fedquilt.reports.html.reproduced_report import REPORT_FILE, write_reproduced_report

        found = _read(kept[TABLE])
        written = [write_reproduced_report(found, out or runs[0] / REPORT_FILE)]
    else:
        written = [_write_comparison(runs, kept[COMPARISON], out)]
    if as_json:
        print_json({"written": [str(path) for path in written]})
        return
    for path in written:
        say(f"{path} ({path.stat().st_size / 1000:,.0f} kB)")


def _write_comparison(runs: Sequence[Path], kept: Path, out: Path | None) -> Path:
    from fedquilt.reports.html.comparison_report import REPORT_FILE, write_comparison_report

    if len(runs) == 1:
        return write_comparison_report(_read(kept), out or runs[0] / REPORT_FILE)
    from fedquilt.reports.comparison import compare
    from fedquilt.runs.finished_run import read_run

    compared = compare([read_run(path) for path in runs])
    return write_comparison_report(compared, out or beside(runs))


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} is damaged ({error}); run the command that wrote it again"
        ) from error
    if not isinstance(content, dict):
        raise UserError(
            f"{path} is damaged: it holds no table; run the command that wrote it again"
        )
    return content
