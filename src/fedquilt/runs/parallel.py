"""Several runs at once, each in a process of its own, with progress read from their histories."""

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
    """Run every recipe into its folder; a folder that holds the run already is gone on with.

    Args:
        workers: processes at a time, by default one per core; each computes on one thread.
        progress: is told how many of all rounds are done.
        failure: is told of a run that failed, and the others go on; without it all are stopped.
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

    torch.set_num_threads(1)  # the processes share the cores already
    recipe = recipe_from(settings)
    splits = _loaded(recipe.data, cache)
    run(recipe, folder, resume=True, cache=cache, device=device, splits=splits)
    if device != "cpu":
        gc.collect()
        torch.cuda.empty_cache()  # or the processes beside this one run out of memory


@lru_cache(maxsize=1)  # a process's next run is mostly on the same images
def _loaded(source: Source, cache: Path) -> Splits:
    return source.load(cache)


def _rounds_done(folder: Path) -> int:
    """Lines are counted, not read: this is asked of many runs several times a second."""
    history = folder / "history.jsonl"
    return history.read_bytes().count(b"\n") if history.exists() else 0
