"""Options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedquilt.core.errors import UserError
from fedquilt.engines.options import EngineOptions

PANEL = "On a GPU"

Engine = Annotated[
    str,
    typer.Option(help="auto; local: clients in turn; threaded: one per core; recorded: for a GPU."),
]
Slots = Annotated[
    int,
    typer.Option(min=1, help="Clients at a time; fewer need less memory.", rich_help_panel=PANEL),
]
ChannelsLast = Annotated[
    bool,
    typer.Option(help="Weights and images as convolutions read them.", rich_help_panel=PANEL),
]
Exact = Annotated[
    bool,
    typer.Option(
        "--exact",
        help="Draws of a CPU, whole float32, deterministic kernels: to compare engines; slower.",
        rich_help_panel=PANEL,
    ),
]


def words_of(options: EngineOptions) -> list[str]:
    """The options that differ from the usual, to be given again."""
    usual = EngineOptions()
    words = ["--engine", options.name] if options.name != usual.name else []
    words += ["--slots", str(options.slots)] if options.slots != usual.slots else []
    words += [] if options.channels_last else ["--no-channels-last"]
    return words + (["--exact"] if options.exact else [])


DEFAULT_CACHE = Path(".cache") / "fedquilt"

RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
Cache = Annotated[Path, typer.Option(help="Where decoded images are kept.")]
Client = Annotated[
    str | None, typer.Option(help="Whose model, for a run in which each client has its own.")
]
Threshold = Annotated[
    float | None,
    typer.Option(help="Probability from which a class is present; else the recipe's."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


def require_device(device: str) -> None:
    import torch

    if device.partition(":")[0] not in ("cpu", "cuda"):
        raise UserError(f"--device is cpu or cuda, found {device!r}")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UserError("--device cuda: torch finds no CUDA device here; use --device cpu")


def require_share(threshold: float | None) -> None:
    if threshold is not None and not 0 <= threshold <= 1:
        raise UserError(f"--threshold is a probability from 0 to 1, found {threshold}")
