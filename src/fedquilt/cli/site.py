"""``fedquilt site``: check a hospital's data against a study, take part in it, get the model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedquilt.cli.console import print_json, results, say
from fedquilt.cli.long_running import require_flare, until_stopped
from fedquilt.cli.options import AsJson

app = typer.Typer(help="Take part in a study across hospitals.", no_args_is_help=True)

KitFolder = Annotated[Path, typer.Argument(metavar="KIT", help="This site's start-up kit.")]
Settings = Annotated[
    Path, typer.Argument(metavar="SITE_TOML", help="This site's own settings, which stay here.")
]


@app.callback()
def site() -> None:
    """Take part in a study across hospitals."""


@app.command()
def check(kit: KitFolder, settings: Settings, as_json: AsJson = False) -> None:
    """Check kit and data against the study; show exactly what would leave, part by part."""
    require_flare()
    from fedquilt.deploy.nvflare.site import open_kit
    from fedquilt.deploy.site.check import check_site, leaving_table
    from fedquilt.deploy.site.settings import read_site_settings

    found = check_site(open_kit(kit), read_site_settings(settings))
    if as_json:
        print_json(found.to_dict())
    else:
        for line in found.sentences():
            say(line)
        results.print(leaving_table(found))
    raise typer.Exit(0 if found.is_fine else 1)


@app.command()
def start(kit: KitFolder, settings: Settings) -> None:
    """Join, by outbound connections only, and stay until stopped."""
    require_flare()
    from fedquilt.deploy.nvflare.site import start_site

    until_stopped(lambda: start_site(kit, settings, say))


@app.command()
def model(
    kit: KitFolder,
    settings: Settings,
    out: Annotated[Path, typer.Option(help="The new folder.")] = Path("runs") / "site-model",
) -> None:
    """Write this site's model, its own or the global one, into a folder that predict takes."""
    from fedquilt.deploy.kit import Kit
    from fedquilt.deploy.site.model import write_site_model
    from fedquilt.deploy.site.settings import read_site_settings

    own = Kit(kit.resolve())
    own.require()  # the seal is for joining; a model stays readable when certificates have expired
    for line in write_site_model(own, read_site_settings(settings), out):
        say(line)
