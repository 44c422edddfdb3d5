"""``fedquilt deploy pause``, ``resume``, ``stop``, ``rollback`` and ``exclude``, with a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedquilt.cli.console import say_line
from fedquilt.cli.long_running import require_flare

StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="The study's TOML file.")]
KitFolder = Annotated[Path, typer.Option("--kit", help="The coordinator's kit.", show_default=True)]
DEFAULT_KIT = Path("kits") / "coordinator"
Reason = Annotated[str, typer.Option(help="Why; the server's audit log keeps it.")]


def pause(study: StudyFile, reason: Reason, kit: KitFolder = DEFAULT_KIT) -> None:
    """Let the study rest after its current round, until it is resumed."""
    _decide(study, kit, "pause", reason)
    say_line("the study pauses after its current round; `fedquilt deploy resume` goes on")


def resume(study: StudyFile, reason: Reason, kit: KitFolder = DEFAULT_KIT) -> None:
    """Go on with a paused study."""
    facts = _decide(study, kit, "resume", reason)
    say_line(f"the study goes on after round {facts['round']}, once `deploy submit` watches it")


def stop(study: StudyFile, reason: Reason, kit: KitFolder = DEFAULT_KIT) -> None:
    """End the study after its current round, with the model that it has then."""
    _decide(study, kit, "stop", reason)
    say_line("the study ends after its current round; sites get its model, and so does `fetch`")


def rollback(
    study: StudyFile,
    to_round: Annotated[int, typer.Option(min=0, help="The last round to keep.")],
    reason: Reason,
    kit: KitFolder = DEFAULT_KIT,
) -> None:
    """Go back to the model after an earlier round; sites are told, with the reason."""
    _decide(study, kit, "rollback", reason, to_round=to_round)
    say_line(f"the study goes on from round {to_round}, once `deploy submit --resume` watches it")


def exclude(
    study: StudyFile,
    site: Annotated[str, typer.Argument(help="The site's name in the study.")],
    reason: Reason,
    kit: KitFolder = DEFAULT_KIT,
) -> None:
    """Keep a site out from now on: not let in, not asked, and its updates refused."""
    facts = _decide(study, kit, "exclude", reason, site=site)
    say_line(f"{site} is kept out; the study is after round {facts['round']}")


def _decide(study: Path, kit: Path, kind: str, reason: str, **further: Any) -> dict[str, Any]:
    require_flare()
    from fedquilt.deploy.nvflare.coordinator import decide_about, open_kit
    from fedquilt.deploy.study import read_study

    chosen = read_study(study)
    return decide_about(chosen, open_kit(kit, chosen), kind, reason, **further)
