"""Options that say how clients are played on this machine, not what is learnt."""

from __future__ import annotations

from typing import Annotated

import typer

from fedquilt.engines.engine_choice import EngineChoice

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


def words_of(choice: EngineChoice) -> list[str]:
    """The options that differ from the usual, to be given again."""
    usual = EngineChoice()
    words = ["--engine", choice.name] if choice.name != usual.name else []
    words += ["--slots", str(choice.slots)] if choice.slots != usual.slots else []
    words += [] if choice.channels_last else ["--no-channels-last"]
    return words + (["--exact"] if choice.exact else [])
