"""``fedquilt site``: check a site's data, take part in a study, and export the model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedquilt.cli.console import print_json, print_line, results, say_line
from fedquilt.cli.long_running import require_flare, until_stopped
from fedquilt.cli.options import AsJson

app = typer.Typer(help="Take part in a study across hospitals.", no_args_is_help=True)

KitFolder = Annotated[Path, typer.Argument(metavar="KIT", help="This site's kit.")]
Settings = Annotated[
    Path, typer.Argument(metavar="SITE_TOML", help="This site's settings, which never leave it.")
]


@app.callback()
def site() -> None:
    """Take part in a study across hospitals."""


@app.command()
def key(
    name: Annotated[str, typer.Argument(help="The site's name in the study.")],
    out: Annotated[Path, typer.Option(help="The folder for the key.")] = Path("keys"),
) -> None:
    """Make the site's key for secure sums, before the study file is agreed on."""
    require_flare()
    from fedquilt.deploy.secure.site_key import key_fingerprint, make_key

    made, public = make_key(name, out)
    say_line(f"private key: {made}; keep it, and name it as sums_key in site.toml")
    say_line("public key: send this line to the coordinator, for [[sites]] in the study file:")
    print_line(f'key = "{public}"')
    say_line(f"fingerprint, for the other sites to ask you: {key_fingerprint(public)}")


@app.command()
def request(
    name: Annotated[str, typer.Argument(help="The site's name in the study.")],
    organisation: Annotated[str, typer.Argument(help="Its organisation in the study.")],
    out: Annotated[Path, typer.Option(help="The folder for key and request.")] = Path("keys"),
) -> None:
    """Make the site's private key, which never leaves it, and a request for a certificate."""
    require_flare()
    from fedquilt.deploy.nvflare.site_keys import make_request

    key, made, fingerprint = make_request(name, organisation, out)
    say_line(f"private key: {key}; keep it, and show it to nobody")
    say_line(f"request: {made}; send it to the coordinator")
    say_line(f"fingerprint, for the coordinator to ask you: {fingerprint}")


@app.command()
def accept(
    kit: KitFolder,
    key: Annotated[Path, typer.Option(help="The private key that the request was made with.")],
) -> None:
    """Put the site's own key into the kit that the coordinator made, and check the kit."""
    require_flare()
    from fedquilt.deploy.nvflare.site_keys import accept as put_in

    accepted, fingerprint = put_in(kit, key)
    study = accepted.study()
    say_line(f"{accepted.folder} is the kit of {accepted.role()} in {study.name}")
    say_line(f"the agreement: {study.hash[:16]}, classes {', '.join(study.classes)}")
    say_line(f"fingerprint of the study's authority, to ask the coordinator: {fingerprint}")


@app.command()
def agree(
    kit: KitFolder,
    amendment: Annotated[Path, typer.Argument(help="The coordinator's amendment.json.")],
    out: Annotated[Path, typer.Option(help="The folder for the signature.")] = Path(),
    yes: Annotated[bool, typer.Option("--yes", help="Sign without asking.")] = False,
) -> None:
    """Show who would join the study, and sign that this site agrees."""
    require_flare()
    from fedquilt.deploy.amendment import read_amendment
    from fedquilt.deploy.nvflare.amending import agree as sign
    from fedquilt.deploy.nvflare.site import open_kit

    proposed, opened = read_amendment(amendment), open_kit(kit)
    for line in proposed.lines():
        say_line(line)
    if not yes and not typer.confirm("Does this site agree?"):
        raise typer.Exit(1)
    say_line(f"signed: {sign(opened, proposed, out)}; send it to the coordinator")


@app.command()
def check(
    kit: KitFolder,
    settings: Settings,
    dry: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Also train one step and judge one batch; nothing is sent or kept."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check kit and data against the study, and show every part that would leave the site."""
    require_flare()
    from fedquilt.deploy.nvflare.site import open_kit
    from fedquilt.deploy.site.check import check_site, leaving_table
    from fedquilt.deploy.site.dry_run import dry_run
    from fedquilt.deploy.site.settings import read_site_settings

    opened, chosen = open_kit(kit), read_site_settings(settings)
    found = check_site(opened, chosen)
    if not as_json:
        for line in found.lines():
            say_line(line)
        results.print(leaving_table(found))
    tried = dry_run(opened, chosen) if dry and found.is_ok else None
    if as_json:
        print_json(found.to_dict() | ({} if tried is None else {"dry_run": tried.to_dict()}))
    elif tried is not None:
        for line in tried.lines():
            say_line(line)
    raise typer.Exit(0 if found.is_ok else 1)


@app.command()
def start(kit: KitFolder, settings: Settings) -> None:
    """Join the study, with outbound connections only, and stay until stopped."""
    require_flare()
    from fedquilt.deploy.nvflare.site import start_site

    until_stopped(lambda: start_site(kit, settings, say_line))


@app.command()
def serve(kit: KitFolder, settings: Settings) -> None:
    """Join as `start` does, as a service: wait for the server as long as it takes."""
    require_flare()
    from fedquilt.deploy.nvflare.site import start_site

    until_stopped(lambda: start_site(kit, settings, say_line, waits=True), code=0)


@app.command()
def health(kit: KitFolder, settings: Settings, as_json: AsJson = False) -> None:
    """Say whether the site takes part; exit code 0, or 3, 4 or 5.

    3: it does not run. 4: it has no connection to the server. 5: it takes part, and its disk, its
    certificate or its last event needs attention.
    """
    require_flare()
    from fedquilt.deploy.kit import Kit
    from fedquilt.deploy.nvflare.health import site_health
    from fedquilt.deploy.site.settings import read_site_settings

    site_kit = Kit(kit.resolve())
    site_kit.require()
    found = site_health(site_kit, read_site_settings(settings))
    if as_json:
        state = found.state.name.lower()
        print_json({"state": state, "exit_code": int(found.state), "lines": found.lines})
    else:
        for line in found.lines:
            print_line(line)
    raise typer.Exit(int(found.state))


@app.command()
def leave(
    kit: KitFolder,
    settings: Settings,
    reason: Annotated[str, typer.Option(help="Why; the server is told, and both audit logs.")],
) -> None:
    """Leave the study for good: answer no more requests, and tell the server when it asks next."""
    from fedquilt.deploy.kit import Kit
    from fedquilt.deploy.site.leaving import leave_study
    from fedquilt.deploy.site.settings import read_site_settings

    site_kit = Kit(kit.resolve())
    site_kit.require()
    study, name = site_kit.study(), site_kit.role()
    folder = leave_study(study, name, read_site_settings(settings), reason)
    say_line(f"{name} answers no more requests of {study.name}")
    say_line("leave the site running until the server's next round, so that the server is told")
    say_line(f"what it kept of the study is still in {folder}; its updates stay in the model")


@app.command()
def model(
    kit: KitFolder,
    settings: Settings,
    out: Annotated[Path, typer.Option(help="The new folder.")] = Path("runs") / "site-model",
) -> None:
    """Export this site's model, its own or the global one, to a folder for predict."""
    from fedquilt.deploy.kit import Kit
    from fedquilt.deploy.site.model import write_site_model
    from fedquilt.deploy.site.settings import read_site_settings

    site_kit = Kit(kit.resolve())
    site_kit.require()  # not the seal: a model can be exported after certificates have expired
    for line in write_site_model(site_kit, read_site_settings(settings), out):
        say_line(line)
