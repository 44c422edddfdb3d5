"""``fedquilt audit``: check that nobody altered an audit log, and what a run's messages reveal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedquilt.cli.console import print_json, print_line, results, say
from fedquilt.cli.options import DEFAULT_CACHE, AsJson, Cache
from fedquilt.core.wording import counted

app = typer.Typer(
    help="Check the audit log of a study, or the privacy of a run.", no_args_is_help=True
)


@app.callback()
def audit() -> None:
    """Check the audit log of a study, or the privacy of a run."""


@app.command()
def verify(
    log: Annotated[
        Path, typer.Argument(metavar="LOG", help="An audit.jsonl, or the folder that holds it.")
    ],
    noted: Annotated[
        str | None,
        typer.Option(metavar="HASH", help="A last hash noted earlier, which the log must hold."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check the chain of hashes; exit code 1 if a line was altered, removed or inserted."""
    from fedquilt.deploy.audit_chain import AUDIT_FILE, verify_chain

    path = log / AUDIT_FILE if log.is_dir() else log
    found = verify_chain(path, noted)
    if as_json:
        print_json(found.to_dict())
        raise typer.Exit(0 if found.damage is None else 1)
    if found.unchained:
        print_line(
            f"{counted(found.unchained, 'line')} of an earlier fedquilt, covered by the first hash"
        )
    print_line(f"{path}: {found.events} events follow from each other")
    if found.damage is not None:
        print_line(f"damaged: {found.damage}")
        raise typer.Exit(1)
    print_line(f"last hash, to be noted elsewhere: {found.last}")


@app.command()
def privacy(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a simulation.")],
    cache: Cache = DEFAULT_CACHE,
    as_json: AsJson = False,
) -> None:
    """Attack what the clients of a run would send, and add the table to the run's report."""
    from dataclasses import asdict

    from rich.table import Table

    from fedquilt.reports.html.run_report import try_run_report
    from fedquilt.runs.audit_tables import COLUMNS, WORDS
    from fedquilt.runs.privacy_audit import privacy_audit

    found = privacy_audit(run, cache=cache)
    try_run_report(run)
    if as_json:
        print_json({"run": str(run), "findings": [asdict(each) for each in found]})
        return
    table = Table(title="Privacy audit")
    for column in COLUMNS:
        table.add_column(column)
    for each in found:
        table.add_row(*each.row())
    results.print(table)
    say(WORDS)
