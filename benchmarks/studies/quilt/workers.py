"""Processes that run one job after another, and leave each other memory on the device."""

from __future__ import annotations

import gc
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.studies.quilt.one_run import Job, run_job

HELD_AT_MOST = 2**32  # bytes on the device that a process may keep from one job to the next
OF_THE_DEVICE = 0.9  # shared by all processes; the rest is for their contexts


def limit_memory(device: str, share: float) -> None:
    """What a process may take of the device, so that it cannot take what others need."""
    import torch

    torch.set_num_threads(1)
    if device == "cuda":
        torch.cuda.set_per_process_memory_fraction(share)


def work(
    job: Job, halfway: Path, folder: Path, device: str
) -> tuple[list[dict[str, Any]], Any, int]:
    """The run's rows and scores, and the bytes that this process still holds on the device."""
    import torch

    rows, scores = run_job(job, folder, device, halfway)
    if device != "cuda":
        return rows, scores, 0
    gc.collect()  # captured steps are in cycles
    torch.cuda.empty_cache()  # other processes need it
    return rows, scores, torch.cuda.memory_reserved()


class Worker:
    """A process for one job after another; another one after a failure, or if it holds memory."""

    def __init__(self, folder: Path, device: str, share: float) -> None:
        self._folder, self._device, self._share = folder, device, share
        self._pool = self._started()

    def _started(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            1,
            mp_context=get_context("spawn"),
            initializer=limit_memory,
            initargs=(self._device, self._share),
        )

    def begin(self, job: Job, halfway: Path) -> Future[Any]:
        return self._pool.submit(work, job, halfway, self._folder, self._device)

    def restart(self) -> None:
        self.kill()
        self._pool = self._started()

    def kill(self) -> None:
        for process in list((self._pool._processes or {}).values()):
            process.kill()
        self._pool.shutdown(wait=False)
