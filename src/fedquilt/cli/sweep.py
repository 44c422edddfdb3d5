"""``fedquilt sweep``: tune methods with an equal budget on validation images, then compare them."""

from __future__ import annotations

import shlex
import socket
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from fedquilt.cli.console import Notes, note, results, say
from fedquilt.cli.options import DEFAULT_CACHE, AsJson, Cache
from fedquilt.cli.run import Changes
from fedquilt.cli.several_runs import Devices, Workers, device_list, show, train_and_compare
from fedquilt.core.errors import UserError
from fedquilt.core.wording import counted

if TYPE_CHECKING:
    from fedquilt.runs.sweep.plan import SweepPlan
    from fedquilt.runs.sweep.search import Outcome, Search

POLL_SECONDS = 5.0

StudyFile = Annotated[
    Path, typer.Argument(metavar="STUDY", help="A recipe file with a table [sweep].")
]
Out = Annotated[Path | None, typer.Option(help="Default: runs/STUDY-sweep.")]
Storage = Annotated[
    str | None,
    typer.Option(
        metavar="URL|FILE", help="Optuna's trials, shared by machines. Default: a file in --out."
    ),
]


def sweep(
    study: StudyFile,
    changes: Changes = None,
    out: Out = None,
    workers: Workers = None,
    devices: Devices = "cpu",
    storage: Storage = None,
    cache: Cache = DEFAULT_CACHE,
    as_json: AsJson = False,
) -> None:
    """Try settings of every method with an equal budget, on validation images only.

    Then train each method's best settings with the study's seeds, and compare them. The same
    command goes on after an interruption; with --storage several machines share the trials.
    """
    from fedquilt.runs.parallel import RunPool
    from fedquilt.runs.sweep.plan import read_sweep
    from fedquilt.runs.sweep.tuning import check_has_validation, tune, with_folders

    chosen = device_list(devices)
    plan = read_sweep(study, changes or ())
    target = out or Path("runs") / f"{plan.name}-sweep"
    target.mkdir(parents=True, exist_ok=True)
    searches, remarks = _searches(plan, storage, target)
    for remark in remarks:
        note(remark)
    check_has_validation(plan, cache)
    try:
        with Notes(), RunPool(cache=cache, workers=workers, devices=chosen) as pool:
            tune(plan, searches, target / "trials", pool, _say_outcome)
        _wait_for_others(searches)
        best = _best(searches, target, as_json=as_json)
        if not _compares_here(searches):
            say("the comparison is run by another machine, into its --out")
            return
        recipes = {
            f"{method}-seed{seed}": plan.recipe(method, settings, seed)
            for method, settings in best.items()
            for seed in plan.sweep.seeds
        }
        folders = with_folders(target / "compared", recipes)
        compared = train_and_compare(folders, target, cache=cache, workers=workers, devices=chosen)
    except KeyboardInterrupt:
        say(f"\nstopped; the same command goes on from {shlex.quote(str(target))}")
        raise typer.Exit(130) from None
    show(compared, target, as_json=as_json)


def _searches(
    plan: SweepPlan, storage: str | None, out: Path
) -> tuple[Mapping[str, Search], list[str]]:
    from fedquilt.runs.sweep.search import grid_searches

    if plan.sweep.search == "grid":
        if storage is not None:
            raise UserError("--storage is for sweep.search = 'optuna'; a grid keeps all in --out")
        return grid_searches(plan)
    from fedquilt.runs.sweep.optuna_search import OptunaSearch, open_storage

    opened = open_storage(storage or str(out / "optuna.journal"))
    place = _place(out)
    return {method: OptunaSearch(plan, method, opened, place) for method in plan.methods}, []


def _place(out: Path) -> str:
    """Return the name of this machine's run folders, the same after a restart."""
    file = out / "machine.txt"
    if not file.exists():
        file.write_text(f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}", encoding="utf-8")
    return file.read_text(encoding="utf-8").strip()


def _say_outcome(outcome: Outcome) -> None:
    trial = outcome.trial
    settings = ", ".join(f"{place}={value}" for place, value in trial.settings.items())
    found = f"failed: {outcome.error}" if outcome.score is None else f"{outcome.score:.4f}"
    say(f"{trial.method} {trial.number}: {settings or 'as in the study file'}: {found}")


def _wait_for_others(searches: Mapping[str, Search]) -> None:
    count = sum(search.running_elsewhere() for search in searches.values())
    if count:
        say(f"waiting for {counted(count, 'trial')} of other machines")
    while any(search.running_elsewhere() for search in searches.values()):
        time.sleep(POLL_SECONDS)


def _compares_here(searches: Mapping[str, Search]) -> bool:
    first = next(iter(searches.values()))
    return bool(getattr(first, "claims_comparison", lambda: True)())


def _best(searches: Mapping[str, Search], out: Path, *, as_json: bool) -> dict[str, Any]:
    """Return each method's best settings; write all trials, and print a table."""
    from fedquilt.core.atomic_files import write_json
    from fedquilt.reports.tables import new_table
    from fedquilt.runs.sweep.tuning import best_of

    best = {method: best_of(method, search) for method, search in searches.items()}
    described: dict[str, dict[str, Any]] = {
        method: {
            "best": best[method].trial.number,
            "trials": [
                {
                    "number": each.trial.number,
                    "settings": each.trial.settings,
                    "score": each.score,
                    "error": each.error,
                }
                for each in search.outcomes()
            ],
        }
        for method, search in searches.items()
    }
    write_json(out / "sweep.json", {"scored_by": "validation images", "methods": described})
    table = new_table("Best settings, on validation images", "method")
    for title in ("trials", "score"):
        table.add_column(title, justify="right")
    table.add_column("settings")
    for method, outcome in best.items():
        settings = ", ".join(f"{k}={v}" for k, v in outcome.trial.settings.items())
        count = len(described[method]["trials"])
        table.add_row(Text(method), str(count), f"{outcome.score:.4f}", Text(settings))
    if not as_json:
        results.print(table)
    return {method: outcome.trial.settings for method, outcome in best.items()}
