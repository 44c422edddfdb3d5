"""``fedquilt``: collects the commands; none of them imports torch before it needs it."""

from __future__ import annotations

import errno
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fedquilt.cli import (
    attack,
    audit,
    compare,
    data,
    demo,
    deploy,
    evaluate,
    export,
    predict,
    report,
    reproduce,
    run,
    server,
    site,
    sweep,
)
from fedquilt.cli import list as list_command
from fedquilt.cli.console import show_error
from fedquilt.core.errors import UserError
from fedquilt.core.version import VERSION

FULL = (errno.ENOSPC, errno.EDQUOT)


class Commands(TyperGroup):
    """Shows a UserError, and a full disk, with exit code 1; other errors keep their traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except UserError as error:
            show_error(error)
            raise typer.Exit(1) from None
        except OSError as error:
            if error.errno not in FULL:
                raise
            place = f" ({error.filename})" if error.filename else ""
            show_error(
                UserError(
                    f"the disk is full{place}; make room and repeat the command: files are "
                    "replaced by whole ones only"
                )
            )
            raise typer.Exit(1) from None


app = typer.Typer(
    cls=Commands,
    help="Federated multi-label learning with partial labels.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fedquilt {VERSION}")
        raise typer.Exit


@app.callback()
def start(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Federated multi-label learning with partial labels."""


app.command("demo")(demo.demo)
app.command("list")(list_command.list_entries)
app.command("run")(run.run)
app.command("reproduce")(reproduce.reproduce)
app.command("attack")(attack.attack)
app.command("sweep")(sweep.sweep)
app.command("compare")(compare.compare)
app.command("report")(report.report)
app.command("evaluate")(evaluate.evaluate)
app.command("predict")(predict.predict)
app.command("export")(export.export)
app.add_typer(data.app, name="data")
app.add_typer(deploy.app, name="deploy")
app.add_typer(site.app, name="site")
app.add_typer(server.app, name="server")
app.add_typer(audit.app, name="audit")


def main() -> None:
    app()
