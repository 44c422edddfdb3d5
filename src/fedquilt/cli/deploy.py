"""``fedquilt deploy``: the coordinator's commands for a study across hospitals."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedquilt.cli.console import print_json, print_line, say, say_line
from fedquilt.cli.deploy_decisions import (
    DEFAULT_KIT,
    KitFolder,
    StudyFile,
    exclude,
    pause,
    resume,
    rollback,
    stop,
)
from fedquilt.cli.long_running import require_flare
from fedquilt.cli.options import AsJson
from fedquilt.core.errors import UserError

app = typer.Typer(help="Coordinate a study across hospitals.", no_args_is_help=True)

AuthorityFolder = Annotated[
    Path, typer.Option(help="The folder with the study's authority.", show_default=True)
]
DEFAULT_AUTHORITY = Path("kits") / "authority"


for command in (pause, resume, stop, rollback, exclude):
    app.command()(command)


@app.callback()
def deploy() -> None:
    """Coordinate a study across hospitals."""


@app.command()
def provision(
    study: StudyFile,
    out: Annotated[Path, typer.Option(help="A new folder for the kits.")] = Path("kits"),
    demo_kits: Annotated[
        bool,
        typer.Option(
            "--demo-kits", help="For demonstrations: make the sites' keys and kits here, too."
        ),
    ] = False,
) -> None:
    """Write the kits of the server and the coordinator, and the study's authority."""
    require_flare()
    from fedquilt.deploy.kit import AUTHORITY
    from fedquilt.deploy.nvflare.provision import provision as make_kits
    from fedquilt.deploy.study import read_study

    chosen = read_study(study)
    kits = make_kits(chosen, out, with_site_keys=demo_kits)
    for name, folder in kits.items():
        say(f"{name}: {folder}")
    say(f"{out / AUTHORITY} holds the key that signs certificates: keep it offline and private")
    if demo_kits:
        say("the sites' private keys were made here: for demonstrations only")
    else:
        say("next, every site makes its own key: fedquilt site request NAME ORGANISATION")
        names = ", ".join(f"{site.name} {site.organisation}" for site in chosen.sites)
        say(f"names and organisations: {names}")


@app.command()
def approve(
    study: StudyFile,
    request: Annotated[Path, typer.Argument(help="The site's request, NAME.csr.")],
    authority: AuthorityFolder = DEFAULT_AUTHORITY,
    out: Annotated[Path, typer.Option(help="The folder of the kits.")] = Path("kits"),
) -> None:
    """Sign a site's request and write its kit, which holds no secret."""
    require_flare()
    from fedquilt.deploy.nvflare.certificates import Authority
    from fedquilt.deploy.nvflare.site_keys import approve as sign
    from fedquilt.deploy.study import read_study

    kit, fingerprint = sign(read_study(study), request, Authority(authority), out)
    say_line(f"{kit.role()}: {kit.folder}; send it back, it holds no secret")
    say_line(f"before you do, ask the site for its key's fingerprint: {fingerprint}")


@app.command()
def renew(
    kits: Annotated[list[Path], typer.Argument(metavar="KIT...", help="Kits of any role.")],
    authority: AuthorityFolder = DEFAULT_AUTHORITY,
) -> None:
    """Give kits new certificates for their keys, valid for another 360 days."""
    require_flare()
    from fedquilt.deploy.kit import Kit
    from fedquilt.deploy.nvflare.certificates import Authority
    from fedquilt.deploy.nvflare.site_keys import renew as issue_again

    for folder in kits:
        end = issue_again(Kit(folder.resolve()), Authority(authority))
        say_line(f"{folder}: valid until {end:%Y-%m-%d}; send it to its owner, who starts it again")


@app.command()
def amend(
    study: Annotated[Path, typer.Argument(help="The study file with the sites that join.")],
    reason: Annotated[str, typer.Option(help="Why; every site reads it before it agrees.")],
    kit: KitFolder = DEFAULT_KIT,
    out: Annotated[Path, typer.Option(help="The file to send to all sites.")] = Path(
        "amendment.json"
    ),
) -> None:
    """Propose that further sites join the running study; every site of before has to agree."""
    require_flare()
    from fedquilt.deploy.nvflare.amending import open_coordinators_kit, propose
    from fedquilt.deploy.study import read_study

    for line in propose(open_coordinators_kit(kit), read_study(study), reason, out).lines():
        say_line(line)
    say_line(f"send {out} to every site, which signs it: fedquilt site agree KIT {out.name}")


@app.command()
def adopt(
    amendment: Annotated[Path, typer.Argument(help="What `deploy amend` wrote.")],
    agreements: Annotated[
        list[Path], typer.Argument(metavar="AGREED...", help="NAME.agreed.json of every site.")
    ],
    authority: AuthorityFolder = DEFAULT_AUTHORITY,
    kits: Annotated[Path, typer.Option(help="The folder of the kits.")] = Path("kits"),
    without: Annotated[
        list[str], typer.Option(help="A site that was excluded or has left, and does not sign.")
    ] = [],  # noqa: B006 (typer reads it)
) -> None:
    """Give the kits of before the amended agreement, which all their sites have signed."""
    require_flare()
    from fedquilt.deploy.nvflare.amending import adopt as take_up
    from fedquilt.deploy.nvflare.certificates import Authority

    for kit in take_up(amendment, agreements, Authority(authority), kits, without):
        say_line(f"{kit.folder}: send it to its owner again")
    say_line("the sites put their keys in with `site accept`, and start with these kits")


@app.command()
def submit(
    study: StudyFile,
    kit: KitFolder = DEFAULT_KIT,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume after the last saved round.")
    ] = False,
    from_round: Annotated[
        int | None,
        typer.Option(min=0, help="Go back to the model after this round first; needs --reason."),
    ] = None,
    reason: Annotated[
        str | None, typer.Option(help="Why the study goes back; kept in every audit log.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Also fetch the run folder to here at the end.")
    ] = None,
) -> None:
    """Run the study to its end, also if sites or jobs fail; exit code 1 if it cannot continue."""
    if (from_round is None) != (reason is None):
        raise UserError("give --from-round and --reason together: every site is told the reason")
    require_flare()
    from fedquilt.deploy.nvflare.coordinator import open_kit, submit_study
    from fedquilt.deploy.study import read_study

    chosen = read_study(study)
    go_back = None if from_round is None or reason is None else (from_round, reason)
    try:
        submit_study(
            chosen, open_kit(kit, chosen), resume=resume, out=out, say=say_line, go_back=go_back
        )
    except KeyboardInterrupt:
        say("the job continues, but returning sites cannot join; watch again: submit --resume")
        raise typer.Exit(130) from None


@app.command()
def status(study: StudyFile, kit: KitFolder = DEFAULT_KIT, as_json: AsJson = False) -> None:
    """Show the round, the connected and missing sites, metrics and bytes."""
    require_flare()
    from fedquilt.deploy.nvflare.coordinator import open_kit, study_status
    from fedquilt.deploy.server.status import status_lines
    from fedquilt.deploy.study import read_study

    chosen = read_study(study)
    facts = study_status(chosen, open_kit(kit, chosen))
    if as_json:
        print_json(facts)
        return
    for line in status_lines(facts):
        print_line(line)


@app.command()
def fetch(
    study: StudyFile,
    kit: KitFolder = DEFAULT_KIT,
    out: Annotated[Path, typer.Option(help="The new run folder.")] = Path("runs") / "deployed",
) -> None:
    """Fetch the run folder, which has the same form as that of a simulation."""
    require_flare()
    from fedquilt.deploy.nvflare.coordinator import describe_run, fetch_run, open_kit
    from fedquilt.deploy.study import read_study

    if out.exists():
        raise UserError(f"{out} already exists; give another --out")
    chosen = read_study(study)
    describe_run(fetch_run(chosen, open_kit(kit, chosen), out), say_line)
