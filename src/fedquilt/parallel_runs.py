"""Several runs at once, each in a process of its own, with progress read from their histories."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from pathlib import Path

from fedquilt.history import History
from fedquilt.recipe import Recipe

POLL_SECONDS = 0.25


def run_all(
    recipes: Mapping[Path, Recipe],
    *,
    cache: Path,
    workers: int | None = None,
    device: str = "cpu",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Run every recipe into its folder; a folder that holds the run already is gone on with.

    Args:
        workers: processes at a time, by default one per core; each computes on one thread.
        progress: is told how many of all rounds are done.
    """
    total = sum(recipe.rounds for recipe in recipes.values())
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers or os.cpu_count(), mp_context=context) as pool:
        waiting: set[Future[None]] = {
            pool.submit(_run_one, recipe.to_dict(), folder, cache, device)
            for folder, recipe in recipes.items()
        }
        try:
            while waiting:
                finished, waiting = wait(waiting, POLL_SECONDS, return_when=FIRST_EXCEPTION)
                for future in finished:
                    future.result()
                progress(sum(_rounds_done(folder) for folder in recipes), total)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _run_one(settings: dict[str, object], folder: Path, cache: Path, device: str) -> None:
    import torch

    from fedquilt.experiment import run
    from fedquilt.recipe import recipe_from

    torch.set_num_threads(1)  # the processes share the cores already
    run(recipe_from(settings), folder, resume=True, cache=cache, device=device)


def _rounds_done(folder: Path) -> int:
    return len(History(folder / "history.jsonl").read())
