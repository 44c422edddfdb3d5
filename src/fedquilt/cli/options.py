"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Literal

import typer

from fedquilt.core.errors import UserError
from fedquilt.engines.options import EngineOptions

DEFAULT_CACHE = Path(".cache") / "fedquilt"
PANEL = "On a GPU"  # of the CUDA graph engine's options in the help


def completing(names: Iterable[str] | Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Let the shell complete these names; a function is called when the user presses Tab."""

    def complete(incomplete: str) -> list[str]:
        known = names() if callable(names) else names
        return [name for name in known if name.startswith(incomplete)]

    return complete


RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
Cache = Annotated[Path, typer.Option(help="Cache folder for decoded images.")]
Client = Annotated[str | None, typer.Option(help="Whose model to use, if each client has its own.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON.")]

Which = Annotated[
    Literal["best", "last"] | None,
    typer.Option(
        "--model", help="The model of the best or the last round. Default: the one that is served."
    ),
]

Processes = Annotated[
    int,
    typer.Option(min=1, help="Processes that share the clients, each with its cores or its GPU."),
]
Engine = Annotated[
    str,
    typer.Option(
        help="auto, sequential, threaded (one client per core), or cuda-graph (for a GPU)."
    ),
]
Slots = Annotated[
    int,
    typer.Option(
        min=1, help="Clients trained concurrently; fewer need less memory.", rich_help_panel=PANEL
    ),
]
ChannelsLast = Annotated[
    bool,
    typer.Option(
        help="Channels-last memory format; convolutions are faster.", rich_help_panel=PANEL
    ),
]
Exact = Annotated[
    bool,
    typer.Option(
        "--exact",
        help="Same draws as on a CPU, float32, deterministic kernels; slower.",
        rich_help_panel=PANEL,
    ),
]


def engine_arguments(options: EngineOptions) -> list[str]:
    """Return the command-line arguments for options that differ from the defaults."""
    default = EngineOptions()
    arguments = ["--engine", options.name] if options.name != default.name else []
    arguments += ["--slots", str(options.slots)] if options.slots != default.slots else []
    arguments += [] if options.channels_last else ["--no-channels-last"]
    return arguments + (["--exact"] if options.exact else [])


def require_device(device: str) -> None:
    import torch

    if device.partition(":")[0] not in ("cpu", "cuda"):
        raise UserError(f"--device must be cpu or cuda, found {device!r}")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UserError("--device cuda: torch finds no CUDA device; use --device cpu")
