"""``fedquilt run``: train with a recipe or on own data, and resume interrupted runs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedquilt.cli import decision_options, own_data, several_runs
from fedquilt.cli import options as shared_options
from fedquilt.cli.console import Notes, note, print_json, say
from fedquilt.cli.options import DEFAULT_CACHE, AsJson, Cache, Device, require_device
from fedquilt.cli.progress import RunProgress
from fedquilt.core.errors import UserError
from fedquilt.core.processes import is_first
from fedquilt.core.wording import counted
from fedquilt.engines.launch import further_processes
from fedquilt.engines.options import SLOTS, EngineOptions
from fedquilt.recipes.catalogue import find_recipe, recipe_paths

if TYPE_CHECKING:
    from fedquilt.recipes.recipe import Recipe
    from fedquilt.runs.finished_run import Run

RUNS = Path("runs")

RecipeName = Annotated[
    str | None,
    typer.Argument(
        metavar="RECIPE",
        autocompletion=shared_options.completing(recipe_paths),
        help="A TOML or JSON file, or a name of `list recipes`.",
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PLACE=VALUE", help="Change a setting, e.g. method.low=0.2."),
]
Out = Annotated[Path | None, typer.Option(help="The run's folder. Default: runs/NAME-SEED.")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume the run in --out.")]
Rounds = Annotated[int | None, typer.Option(help="Short for --set rounds=N.")]
Seed = Annotated[int | None, typer.Option(help="Short for --set seed=N.")]
Track = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TRACKER",
        autocompletion=shared_options.completing(("tensorboard", "mlflow", "wandb")),
        help="Also log to tensorboard, mlflow or wandb (extras of these names). May be repeated.",
    ),
]
Seeds = Annotated[
    int,
    typer.Option(min=1, help="Runs with this many seeds, from --seed on, in parallel; compared."),
]


def run(
    recipe: RecipeName = None,
    changes: Changes = None,
    out: Out = None,
    resume: Resume = False,
    rounds: Rounds = None,
    seed: Seed = None,
    seeds: Seeds = 1,
    track: Track = None,
    threshold: decision_options.GivenThresholds = None,
    threshold_rule: decision_options.ThresholdRules = None,
    calibration: decision_options.Calibration = None,
    device: Device = "cpu",
    processes: shared_options.Processes = 1,
    engine: shared_options.Engine = "auto",
    slots: shared_options.Slots = SLOTS,
    channels_last: shared_options.ChannelsLast = True,
    exact: shared_options.Exact = False,
    cache: Cache = DEFAULT_CACHE,
    as_json: AsJson = False,
    data: own_data.DataFolder = None,
    labels: own_data.LabelFile = None,
    image_column: own_data.ImageColumn = "image",
    site_column: own_data.SiteColumn = None,
    patient_column: own_data.PatientColumn = None,
    split_column: own_data.SplitColumn = None,
    classes: own_data.Classes = None,
    ignore_columns: own_data.IgnoreColumns = None,
    uncertain: own_data.Uncertain = "ignore",
    label_names: own_data.LabelNames = None,
    clients: own_data.Clients = None,
    method: own_data.MethodName = "fedmlp",
    size: own_data.Size = own_data.DEFAULT_SIZE,
    grey: own_data.Grey = False,
    backbone: own_data.Backbone = "small-resnet",
    weights: own_data.Weights = "random",
) -> None:
    """Run a recipe, or train on your own images; all output goes to one folder."""
    options = own_data.OwnData.of(locals())
    engine_options = EngineOptions(engine, slots, channels_last, exact)  # type: ignore[arg-type]
    short = {"rounds": rounds, "seed": seed}
    overrides = [*(changes or []), *(f"{k}={v}" for k, v in short.items() if v is not None)]
    chosen, name = _choose(recipe, options, overrides, out if resume else None)
    chosen = decision_options.with_decision_options(chosen, threshold, threshold_rule, calibration)
    if resume and out is None:
        raise UserError("--resume needs --out, the folder of the run to resume")
    if seeds > 1:
        if resume or processes > 1 or track or engine_options != EngineOptions():
            raise UserError(
                "--seeds runs every seed in a process of its own and goes on by itself; leave out "
                "--resume, --processes, --track and the options of engines"
            )
        _run_seeds(chosen, seeds, out or RUNS / f"{name}-{seeds}-seeds", cache, device, as_json)
        return
    with further_processes(processes):
        finished = _train(
            chosen,
            out or _new_folder(name, chosen.seed),
            resume=resume,
            cache=cache,
            device=device,
            engine=engine_options,
            track=track or (),
        )
    _report(finished, as_json=as_json)


def _run_seeds(
    recipe: Recipe, seeds: int, out: Path, cache: Path, device: str, as_json: bool
) -> None:
    """Run the seeds in folders of their own; finished ones are kept, the others go on."""
    recipes = {
        out / f"seed-{seed}": replace(recipe, seed=seed)
        for seed in range(recipe.seed, recipe.seed + seeds)
    }
    try:
        compared = several_runs.train_and_compare(
            recipes, out, cache=cache, workers=None, devices=several_runs.device_list(device)
        )
    except KeyboardInterrupt:
        say(f"\nstopped; the same command goes on from {shlex.quote(str(out))}")
        raise typer.Exit(130) from None
    several_runs.show(compared, out, as_json=as_json)


def _choose(
    recipe: str | None, options: own_data.OwnData, overrides: Sequence[str], resumed: Path | None
) -> tuple[Recipe, str]:
    """Return the recipe and a name for its run folder."""
    if recipe is None and (options.data is not None or options.labels is not None):
        chosen = options.recipe(overrides)
        return chosen, chosen.to_dict()["method"]["name"]
    if recipe is not None and Path(recipe).is_dir():
        raise UserError(
            f"{recipe} is a folder and no recipe; to train on images in it: fedquilt run --data "
            f"{shlex.quote(recipe)} --labels CSV"
        )
    if options.given():
        raise UserError(
            f"{', '.join(options.given())}: for own data only (--data FOLDER, without a recipe); "
            "change a recipe with --set, e.g. --set data.size=128"
        )
    from fedquilt.recipes.recipe import read_recipe, recipe_from, with_overrides
    from fedquilt.runs.run_folder import RunFolder

    if recipe is not None:
        path = find_recipe(recipe)
        return read_recipe(path, overrides), path.stem
    if resumed is None:
        raise UserError(
            "nothing to run: give a recipe (`fedquilt list recipes`), or own images with "
            "--data FOLDER --labels CSV, or resume a run with --out FOLDER --resume"
        )
    settings = RunFolder(resumed).read_json(RunFolder(resumed).recipe)
    return recipe_from(with_overrides(settings, overrides)), resumed.name


def _new_folder(name: str, seed: int) -> Path:
    first = folder = RUNS / f"{name}-{seed}"
    number = 2
    while folder.exists():
        folder = first.with_name(f"{first.name}-{number}")
        number += 1
    return folder


def _train(
    recipe: Recipe,
    folder: Path,
    *,
    resume: bool,
    cache: Path,
    device: str,
    engine: EngineOptions,
    track: Sequence[str],
) -> Run:
    from fedquilt.engines.process_group import device_of_process, processes_around
    from fedquilt.reports.run_with_report import run as run_recipe
    from fedquilt.runs import experiment

    require_device(device)
    warmup = getattr(recipe.method, "warmup_rounds", 0)
    if warmup >= recipe.rounds:
        note(
            f"method.warmup_rounds is {warmup} and the run has {counted(recipe.rounds, 'round')}: "
            "the warm-up never ends"
        )
    try:
        with Notes(), RunProgress() as progress, processes_around() as processes:
            folder = Path(processes.share(str(folder))[0])  # each may have chosen another
            options: dict[str, Any] = {
                "resume": resume,
                "cache": cache,
                "device": device_of_process(device),
                "engine": engine,
                "processes": processes,
            }
            if is_first(processes):
                return run_recipe(recipe, folder, observe=progress, track=track, **options)
            experiment.run(recipe, folder, **options)
        raise typer.Exit  # the first process reports
    except KeyboardInterrupt:
        if int(os.environ.get("RANK", "0")):
            raise typer.Exit(130) from None
        _say_how_to_resume(folder, recipe.rounds, cache, device, engine)
        raise typer.Exit(130) from None


def _say_how_to_resume(
    folder: Path, rounds: int, cache: Path, device: str, engine: EngineOptions
) -> None:
    from fedquilt.runs.checkpoint import Checkpoints
    from fedquilt.runs.run_folder import RunFolder

    files = RunFolder(folder)
    if not files.recipe.exists():
        say("\nstopped before the run began; nothing was written")
        return
    saved = Checkpoints(files.checkpoints).restore()[0] if files.checkpoints.is_dir() else None
    done = 0 if saved is None else saved.round_count
    say(f"\nstopped; saved in {folder}: {done} of {counted(rounds, 'round')}. Resume with:")
    options = ["--device", device] if device != "cpu" else []
    count = os.environ.get("WORLD_SIZE", "1")
    options += ["--processes", count] if count != "1" else []
    options += shared_options.engine_arguments(engine)
    options += ["--cache", str(cache)] if cache != DEFAULT_CACHE else []
    say("  " + shlex.join(["fedquilt", "run", "--out", str(folder), "--resume", *options]))
    if done:
        say(f"Or use it as it is: fedquilt evaluate {shlex.quote(str(folder))}")


def _report(finished: Run, *, as_json: bool) -> None:
    from fedquilt.cli.run_report import show_result

    if as_json:
        drawn = sorted(str(path) for path in finished.folder.pictures.glob("*.png"))
        print_json({"folder": str(finished.path), "pictures": drawn, **finished.result})
    else:
        show_result(finished)
