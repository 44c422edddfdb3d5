"""Several runs in parallel processes, with progress read from their histories."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from fedquilt.core.child_process import end_with_parent
from fedquilt.recipes.recipe import Recipe

if TYPE_CHECKING:
    from fedquilt.data.source import Source, Splits

POLL_SECONDS = 0.25


def run_all(
    recipes: Mapping[Path, Recipe],
    *,
    cache: Path,
    workers: int | None = None,
    device: str = "cpu",
    progress: Callable[[int, int], None] = lambda done, total: None,
    failure: Callable[[Path, Exception], None] | None = None,
) -> None:
    """Run every recipe into its folder; an existing run folder is resumed.

    Args:
        recipes: the recipe of each folder.
        cache: the folder for downloaded and decoded data.
        workers: number of processes, by default one per core; each uses one thread.
        device: where each process computes.
        progress: called repeatedly with the number of finished rounds and of all rounds.
        failure: called with the folder and error of a failed run; the other runs continue.
            Without it, the first error stops all runs and is raised.
    """
    total = sum(recipe.rounds for recipe in recipes.values())
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        workers or os.cpu_count(), mp_context=context, initializer=end_with_parent
    ) as pool:
        folders: dict[Future[None], Path] = {
            pool.submit(_run_one, recipe.to_dict(), folder, cache, device): folder
            for folder, recipe in recipes.items()
        }
        waiting = set(folders)
        try:
            while waiting:
                finished, waiting = wait(waiting, POLL_SECONDS, return_when=FIRST_EXCEPTION)
                for future in finished:
                    error = future.exception()
                    if isinstance(error, Exception) and failure is not None:
                        failure(folders[future], error)
                    else:
                        future.result()
                progress(sum(_rounds_done(folder) for folder in recipes), total)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _run_one(settings: dict[str, object], folder: Path, cache: Path, device: str) -> None:
    import torch

    from fedquilt.recipes.recipe import recipe_from
    from fedquilt.runs.experiment import run

    torch.set_num_threads(1)  # there is one process per core
    recipe = recipe_from(settings)
    splits = _loaded(recipe.data, cache)
    run(recipe, folder, resume=True, cache=cache, device=device, splits=splits)
    if device != "cpu":
        gc.collect()
        torch.cuda.empty_cache()  # leave the memory to the other processes


@lru_cache(maxsize=1)  # the next run of a process usually has the same data
def _loaded(source: Source, cache: Path) -> Splits:
    return source.load(cache)


def _rounds_done(folder: Path) -> int:
    """Count lines without parsing them, because many runs are polled several times a second."""
    history = folder / "history.jsonl"
    return history.read_bytes().count(b"\n") if history.exists() else 0
