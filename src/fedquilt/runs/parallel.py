"""RunPool: runs in parallel processes, each on a device; run_all() does many at once."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedquilt.core.child_process import end_with_parent
from fedquilt.engines.options import EngineName, EngineOptions
from fedquilt.recipes.recipe import Recipe

if TYPE_CHECKING:
    from fedquilt.data.source import Source, Splits

POLL_SECONDS = 0.25
RUNS_OF_A_PROCESS = 4  # on a device, so that no memory which a run holds there lasts
SHARED = 0.9  # of a device's memory, by the processes that compute there
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # of NumPy's libraries


class RunPool:
    """Processes that each train one run at a time; an existing run folder is resumed.

    Leaving the ``with`` block by an error ends the processes; their runs can be resumed.
    """

    def __init__(
        self,
        *,
        cache: Path,
        workers: int | None = None,
        devices: Sequence[str] = ("cpu",),
        engine: EngineName | EngineOptions = "auto",
    ) -> None:
        """Args: see :func:`run_all`; ``engine`` is of every run."""
        for name in ONE_THREAD:
            os.environ.setdefault(name, "1")  # read by the processes when they start
        on_cpu = all(device == "cpu" for device in devices)
        count = workers or ((os.cpu_count() or 1) if on_cpu else len(devices))
        self._cache, self._engine = cache, engine
        self._free = [devices[number % len(devices)] for number in range(count)]
        self._sharing = Counter(self._free)
        self._active: dict[Future[None], tuple[Path, str]] = {}
        self._executor = ProcessPoolExecutor(
            count,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=end_with_parent,
            max_tasks_per_child=None if on_cpu else RUNS_OF_A_PROCESS,
        )

    @property
    def has_room(self) -> bool:
        return bool(self._free)

    @property
    def is_idle(self) -> bool:
        return not self._active

    def submit(self, recipe: Recipe, folder: Path) -> None:
        """Start a run on a free device; call it only if the pool has room."""
        device = self._free.pop(0)
        future = self._executor.submit(
            _run_one,
            recipe.to_dict(),
            folder,
            self._cache,
            device,
            self._engine,
            self._share(device),
        )
        self._active[future] = (folder, device)

    def _share(self, device: str) -> float:
        """Of a device's memory, what one process may take."""
        sharing = self._sharing[device]
        return SHARED / sharing if sharing > 1 else 1.0

    def finished(self) -> list[tuple[Path, BaseException | None]]:
        """Wait for a moment, and return the folders of runs that have ended, with their errors."""
        done, _ = wait(self._active, POLL_SECONDS, return_when=FIRST_COMPLETED)
        ended = []
        for future in done:
            folder, device = self._active.pop(future)
            self._free.append(device)
            ended.append((folder, future.exception()))
        return ended

    def __enter__(self) -> RunPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, *details: Any) -> None:
        self._executor.shutdown(wait=kind is None, cancel_futures=True)
        if kind is not None:
            for process in multiprocessing.active_children():
                process.terminate()


def run_all(
    recipes: Mapping[Path, Recipe],
    *,
    cache: Path,
    workers: int | None = None,
    devices: Sequence[str] = ("cpu",),
    progress: Callable[[int, int], None] = lambda done, total: None,
    failure: Callable[[Path, Exception], None] | None = None,
) -> None:
    """Run every recipe into its folder; an existing run folder is resumed.

    Args:
        recipes: the recipe of each folder.
        cache: the folder for downloaded and decoded data.
        workers: number of processes, by default one per core, or one per device that is no CPU;
            each uses one thread.
        devices: where the processes compute, in turn.
        progress: called repeatedly with the number of finished rounds and of all rounds.
        failure: called with the folder and error of a failed run; the other runs continue.
            Without it, the first error stops all runs and is raised.
    """
    total = sum(recipe.rounds for recipe in recipes.values())
    waiting = list(recipes)
    with RunPool(cache=cache, workers=workers, devices=devices) as pool:
        while waiting or not pool.is_idle:
            while waiting and pool.has_room:
                folder = waiting.pop(0)
                pool.submit(recipes[folder], folder)
            for folder, error in pool.finished():
                if error is not None and (failure is None or not isinstance(error, Exception)):
                    raise error
                if error is not None and failure is not None:
                    failure(folder, error)
            progress(sum(rounds_done(folder) for folder in recipes), total)


def _run_one(
    settings: dict[str, object],
    folder: Path,
    cache: Path,
    device: str,
    engine: EngineName | EngineOptions,
    share: float,
) -> None:
    import torch

    from fedquilt.recipes.recipe import recipe_from
    from fedquilt.runs.experiment import run

    torch.set_num_threads(1)  # there is one process per core
    if (index := torch.device(device).index) is not None:  # "cuda" is torch's current device
        torch.cuda.set_device(index)
    if torch.device(device).type == "cuda":  # a run that needs more fails, instead of the others
        torch.cuda.set_per_process_memory_fraction(share)
    recipe = recipe_from(settings)
    splits = _loaded(recipe.data, cache)
    run(recipe, folder, resume=True, cache=cache, device=device, engine=engine, splits=splits)
    if device != "cpu":
        gc.collect()
        torch.cuda.empty_cache()  # leave the memory to the other processes


@lru_cache(maxsize=1)  # the next run of a process usually has the same data
def _loaded(source: Source, cache: Path) -> Splits:
    return source.load(cache)


def rounds_done(folder: Path) -> int:
    """Count lines without parsing them, because many runs are polled several times a second."""
    history = folder / "history.jsonl"
    return history.read_bytes().count(b"\n") if history.exists() else 0
