"""``fedquilt audit``: check that nobody has altered an audit log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedquilt.cli.console import print_json, print_line
from fedquilt.cli.options import AsJson

app = typer.Typer(help="Check the audit logs of a study.", no_args_is_help=True)


@app.callback()
def audit() -> None:
    """Check the audit logs of a study."""


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
        print_line(f"{found.unchained} lines of an earlier fedquilt, covered by the first hash")
    print_line(f"{path}: {found.events} events follow from each other")
    if found.damage is not None:
        print_line(f"damaged: {found.damage}")
        raise typer.Exit(1)
    print_line(f"last hash, to be noted elsewhere: {found.last}")
