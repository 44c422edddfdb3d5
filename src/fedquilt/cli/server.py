"""``fedquilt server``: run the server of a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedquilt.cli.console import say_line
from fedquilt.cli.long_running import require_flare, until_stopped

app = typer.Typer(help="Run the server of a study across hospitals.", no_args_is_help=True)


@app.callback()
def server() -> None:
    """Run the server of a study across hospitals."""


@app.command()
def start(kit: Annotated[Path, typer.Argument(help="The server's kit.")]) -> None:
    """Listen on the study's address until stopped."""
    require_flare()
    from fedquilt.deploy.nvflare.server import start_server

    until_stopped(lambda: start_server(kit, say_line))
