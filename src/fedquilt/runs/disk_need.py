"""How much disk the states of clients will take, said before the first round."""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass
from pathlib import Path

from fedquilt.core.payload import addressed
from fedquilt.core.tree import byte_count, without
from fedquilt.core.wording import counted
from fedquilt.engines.client_states import halved
from fedquilt.engines.sequential import SequentialEngine
from fedquilt.recipes.recipe import Recipe
from fedquilt.runs.simulation import Simulation
from fedquilt.runs.state_packs import LEAST_USED
from fedquilt.training.client import run_client
from fedquilt.training.method import State

WORTH_SAYING = 1e9  # bytes; a state is seldom much larger than the model


@dataclass(frozen=True)
class StatesNeed:
    """What the states of the clients that a run is expected to visit take."""

    each: int  # bytes of a client's state
    visited: int  # clients with a state at the end
    clients: int
    is_halved: bool

    @property
    def most(self) -> float:
        """The largest size of the packs on disk, which may be partly out of date."""
        return self.each * self.visited / LEAST_USED


def states_need(
    recipe: Recipe, simulation: Simulation, engine: SequentialEngine, server: State
) -> StatesNeed | None:
    """Return what clients' states will take; None if it is below ``WORTH_SAYING``.

    Where states could be that large, the smallest client plays its first round once more than
    needed, since only a round shows what a method keeps.
    """
    method, task, clients = recipe.method, simulation.task, simulation.clients
    weights = byte_count(server.get("weights", {}))
    count = len(clients)
    cohort = count if recipe.cohort_size is None else min(recipe.cohort_size, count)
    # Of n clients, each is left out of all R cohorts of c with a probability of (1 - c/n)^R.
    visited = math.ceil(count * (1 - (1 - cohort / count) ** recipe.rounds))
    if visited * weights < WORTH_SAYING:
        return None
    data = min(clients.values(), key=len)
    payload = addressed(method.broadcast(server), data.name)
    _, state = run_client(method, task, engine.workspace, data, payload, {}, 0)
    is_halved = recipe.state_numbers == "bfloat16"
    if recipe.payload.is_lossy and recipe.payload.error_feedback:
        state = {**state, "unsent": without(server["weights"], *task.layout.buffers)}
    each = byte_count(halved(state) if is_halved else state)
    need = StatesNeed(each, visited, count, is_halved)
    return None if need.most < WORTH_SAYING else need


def said(need: StatesNeed, folder: Path) -> str:
    """Return the need in words, beside what is free where the run folder will be."""
    place = next(path for path in (folder.resolve(), *folder.resolve().parents) if path.exists())
    free = shutil.disk_usage(place).free
    text = (
        f"clients keep states of {need.each / 1e6:.1f} MB; about {need.visited:,} of "
        f"{counted(need.clients, 'client')} will have one, which takes up to {need.most / 1e9:.1f} "
        f"GB in the run folder, where {free / 1e9:.1f} GB are free"
    )
    if need.most > free and not need.is_halved:
        text += "; state_numbers = 'bfloat16' takes about half"
    return text
