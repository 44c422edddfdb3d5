"""The study's runs: rates and ideas on a tuning seed, then the survivors on new seeds.

    python -m benchmarks.studies.quilt.runs --folder carry/22 --out FOLDER --seconds 570

Each row's learning rate is chosen on the tuning seed's validation images, from as many rates for
every row, by the mean of AUC and mAP after the last round. Candidates are screened at QUILT's rate
the same way; the best one also runs on the new seeds. Jobs start in the order of the plan as soon
as what they depend on is known, several at a time; results are written as they are made, and an
interrupted study goes on where it was. Jobs that would not end in time are not started.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.studies.quilt.one_run import GLOBAL, Job, run_job
from benchmarks.studies.quilt.problems import PROBLEMS, ROWS

TUNING_SEED, SEEDS = 100, (1, 2, 3, 4, 5)
MAIN = "composites, 1 of 10"
THREE, SKEWED = "composites, 3 of 10", "composites, 1 of 10, Dirichlet"
SCENES, RADIOGRAPHS = "scenes, 1 of 5", "radiographs, 2 of 6"
CARRIES_OVER = {  # rows that share the rate of another
    "QUILT without guard": "QUILT",
    "QUILT, momentum 0.5": "QUILT",
    "CR, annotators' rows": "CR",
    "CR, server lr 2, annotators' rows": "CR, server lr 2",
}
CANDIDATES = [row for row in ROWS if row.startswith("QUILT,") or row == "QUILT without guard"]
IDEAS = [row for row in CANDIDATES if row != "QUILT without guard"]
SMALL = ("full labels", "FedAvg-PL", "FedMLP", "CR", "CR, server lr 2", "QUILT")
GUARDS = ("CR, annotators' rows", "QUILT without guard", "QUILT, fading")
BEST = "the best candidate"
TUNED = [row for row in ROWS if row not in CANDIDATES and row not in CARRIES_OVER]
# (phase, problem, rows, rounds; None: the problem's). A seed's rows come before the next seed's.
PLAN: list[tuple[str, str, tuple[str, ...], int | None]] = [
    ("tuning", MAIN, tuple(TUNED), 40),
    ("tuning", SCENES, SMALL, None),
    ("screening", MAIN, ("QUILT", "CR, annotators' rows", *CANDIDATES), None),
    (
        "final",
        MAIN,
        ("QUILT", "FedAvg-PL", "full labels", "QUILT without guard", "FedMLP"),
        None,
    ),
    ("screening", SCENES, ("QUILT", *GUARDS), None),
    ("final", SCENES, (*SMALL, *GUARDS), None),
    ("final", MAIN, (BEST, "FedAvg-PL, server lr 2", "CR", "CR, server lr 2"), None),
    ("tuning", RADIOGRAPHS, SMALL, None),
    ("final", RADIOGRAPHS, (*SMALL, "CR, annotators' rows"), None),
    ("final", MAIN, ("CR, server lr 2, annotators' rows", "FedLSM", "FedNoRo"), None),
    ("final", THREE, ("FedAvg-PL", "QUILT", "FedMLP", "full labels", "CR, server lr 2"), None),
    ("final", SKEWED, ("FedAvg-PL", "QUILT", "FedMLP", "full labels"), None),
    ("final", MAIN, ("CR, annotators' rows",), None),
]
DIGITS = "digits, 1 of 5"
DIGITS_PLAN: list[tuple[str, str, tuple[str, ...], int | None]] = [
    ("tuning", DIGITS, tuple(TUNED), None),
    ("final", DIGITS, (*TUNED, *CARRIES_OVER), None),
]


@dataclass
class Study:
    """What is finished, and what can start; one row of results per evaluation."""

    out: Path
    finished: set[Job] = field(default_factory=set)  # or failed
    quality: dict[tuple[str, str, str, float], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.results.exists():
            with self.results.open(newline="", encoding="utf-8") as file:
                for row in csv.DictReader(file):
                    self.note(row)

    @property
    def results(self) -> Path:
        return self.out / "quilt_runs.csv"

    def note(self, row: dict[str, Any]) -> None:
        """Remember that a run is finished and, after its last round, the mean of AUC and mAP."""
        job = Job(
            phase=row["phase"],
            problem=row["problem"],
            row=row["row"],
            seed=int(row["seed"]),
            rounds=int(row["rounds"]),
            rate=float(row["rate"]),
        )
        self.finished.add(job)
        if int(row["round"]) == job.rounds and row["served"] == GLOBAL:
            value = (float(row["macro_auc"]) + float(row["map"])) / 2
            self.quality[_key(job)] = value

    def keep(self, rows: list[dict[str, Any]], scores: Any) -> None:
        """Append rows and scores; a row names the place of its scores in the other file."""
        with (self.out / "quilt_scores.f16").open("ab") as file:
            start = file.tell()
            file.write(scores.contiguous().numpy().tobytes())
        shape = "x".join(map(str, scores.shape))
        for row in rows:
            is_last = row["round"] == row["rounds"] and row["served"] == GLOBAL
            row |= {"scores_at": start if is_last else "", "scores_shape": shape if is_last else ""}
        fresh = not self.results.exists()
        with self.results.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [*rows[0]], lineterminator="\n")
            if fresh:
                writer.writeheader()
            writer.writerows(rows)
        for row in rows:
            self.note(row)

    def rate(self, problem: str, row: str) -> float | None:
        """The best learning rate on the tuning seed, once all were tried."""
        source = PROBLEMS[problem].rates_from or problem
        of_row = CARRIES_OVER.get(row, "QUILT" if row in CANDIDATES else row)
        tried = {
            job.rate
            for job in self.finished
            if (job.phase, job.problem, job.row) == ("tuning", source, of_row)
        }
        if not tried.issuperset(PROBLEMS[source].rates):
            return None
        return max(tried, key=lambda rate: self.quality.get(("tuning", source, of_row, rate), 0.0))

    def best_candidate(self) -> str | None:
        """The idea that is best on the tuning seed, once all were tried."""
        screened = [job for job in self.finished if (job.phase, job.problem) == ("screening", MAIN)]
        if not {job.row for job in screened}.issuperset(CANDIDATES):
            return None
        values: dict[str, float] = {job.row: self.quality.get(_key(job), 0.0) for job in screened}
        return max(IDEAS, key=lambda row: values[row])

    def jobs(self, plan: list[Any]) -> Iterator[Job | None]:
        """Every job in order; None for one that waits for others."""
        for phase, problem, rows, rounds in plan:
            length = rounds or PROBLEMS[problem].rounds
            for seed in SEEDS if phase == "final" else (TUNING_SEED,):
                for named in rows:
                    row = self.best_candidate() if named == BEST else named
                    if row is None:
                        yield None
                        continue
                    if phase == "tuning":
                        rates: tuple[float | None, ...] = PROBLEMS[problem].rates
                    else:
                        rates = (self.rate(problem, row),)
                    for rate in rates:
                        yield (
                            None
                            if rate is None
                            else Job(
                                phase=phase,
                                problem=problem,
                                row=row,
                                seed=seed,
                                rounds=length,
                                rate=rate,
                            )
                        )


def _key(job: Job) -> tuple[str, str, str, float]:
    return (job.phase, job.problem, job.row, job.rate)


def work(job: Job, folder: Path, device: str) -> tuple[list[dict[str, Any]], Any]:
    import torch

    torch.set_num_threads(1)
    return run_job(job, folder, device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="of data_sets")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True, help="for the whole command")
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--digits", action="store_true", help="the digits, instead of the rest")
    parser.add_argument("--shrink", type=int, help="rounds at most, to try the script")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    study, plan = Study(options.out), DIGITS_PLAN if options.digits else PLAN
    if options.shrink:
        plan = [(*rest, min(options.shrink, n or 10**6)) for *rest, n in plan]
    running: dict[Future[Any], tuple[Job, float]] = {}
    pace: dict[str, list[float]] = {}  # by data: seconds of a round, while all workers are busy
    pool = ProcessPoolExecutor(options.workers, mp_context=get_context("spawn"))

    end: float = time.monotonic() + options.seconds

    def left() -> float:
        return end - time.monotonic()

    def start() -> bool:
        """Start the first job that is ready and fits into the time left; say if there was one."""
        begun = {job for job, _ in running.values()} | study.finished
        for job in study.jobs(plan):
            if job is None or job in begun:
                continue
            alike = sorted(pace.get(PROBLEMS[job.problem].data, [0.0]))
            if job.rounds * alike[len(alike) // 2] > left() - 5:
                continue
            future = pool.submit(work, job, options.folder, options.device)
            running[future] = (job, time.monotonic())
            return True
        return False

    while left() > 0:
        while len(running) < options.workers and start():
            pass
        if not running:
            break
        done, _ = wait(running, timeout=max(left(), 0), return_when=FIRST_COMPLETED)
        for future in done:
            job, since = running.pop(future)
            if error := future.exception():
                study.finished.add(job)
                print(f"FAILED {job}: {str(error)[:300]}", flush=True)
                continue
            rows, scores = future.result()
            study.keep(rows, scores)
            of_data = pace.setdefault(PROBLEMS[job.problem].data, [])
            of_data.append((time.monotonic() - since) / job.rounds)
            last = next(row for row in reversed(rows) if row["served"] == GLOBAL)
            shown = (last[name] for name in ("macro_auc", "map", "seconds", "memory_MiB"))
            print(f"{options.seconds - left():5.0f}s", *vars(job).values(), *shown, flush=True)
    print(f"{len(running)} runs were cut off", flush=True)
    for process in list((pool._processes or {}).values()):
        process.kill()
    os._exit(0)


if __name__ == "__main__":
    main()
