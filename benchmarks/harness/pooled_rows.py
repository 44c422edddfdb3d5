"""Jobs in several processes, whose rows are written as they are made.

An interrupted benchmark goes on where it was, and one with a time limit starts no job late.
"""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path

import torch

from benchmarks.harness.result_csv import Row, made_with


def pooled_rows(
    path: Path,
    jobs: Sequence[Row],
    work: Callable[[Row], Row],
    *,
    workers: int,
    seconds: float,
) -> list[Row]:
    """Return the rows of all finished jobs: the job's own columns, then what ``work`` found.

    Args:
        path: the CSV file; a job that is in it is not repeated.
        jobs: columns that say what to do, in the order in which they start.
        work: a function of a module, so that another process can call it.
        workers: processes.
        seconds: no job is started later.
    """
    rows = _read(path)
    columns = list(jobs[0])
    finished = {_key(row, columns) for row in rows}
    waiting = [job for job in jobs if _key(job, columns) not in finished]
    print(f"{len(jobs) - len(waiting)} of {len(jobs)} jobs are finished already", flush=True)
    facts, ends = made_with("cpu"), time.monotonic() + seconds
    with ProcessPoolExecutor(workers, get_context("spawn"), _one_thread) as pool:
        running: dict[Future[Row], Row] = {}
        while running or (waiting and time.monotonic() < ends):
            while waiting and len(running) < workers and time.monotonic() < ends:
                job = waiting.pop(0)
                running[pool.submit(work, job)] = job
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for each in done:
                job = running.pop(each)
                if each.exception() is not None:
                    print(f"failed: {job}: {str(each.exception())[:300]}", flush=True)
                    continue
                rows.append({**job, **each.result(), **facts})
                _write(path, rows)
                print(rows[-1], flush=True)
    return rows


def _one_thread() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)


def _key(row: Row, columns: Sequence[str]) -> tuple[str, ...]:
    return tuple(str(row[column]) for column in columns)


def _read(path: Path) -> list[Row]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _write(path: Path, rows: Sequence[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = dict.fromkeys(column for row in rows for column in row)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*columns], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
