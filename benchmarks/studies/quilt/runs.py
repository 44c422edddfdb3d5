"""The study's runs: rates and ideas on a tuning seed, then the survivors on new seeds.

    python -m benchmarks.studies.quilt.runs --folder carry/22 --out FOLDER --seconds 480

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
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.harness.result_csv import made_with
from benchmarks.studies.quilt.one_run import GLOBAL, Job
from benchmarks.studies.quilt.plan import (
    BEST,
    CANDIDATES,
    CARRIES_OVER,
    IDEAS,
    MAIN,
    ON_DIGITS,
    PLAN,
    TUNING_SEED,
    Part,
)
from benchmarks.studies.quilt.problems import PROBLEMS, follows_the_rounds
from benchmarks.studies.quilt.workers import HELD_AT_MOST, OF_THE_DEVICE, Worker

ATTEMPTS = 2  # of a job that failed, as when other processes had the device's memory


@dataclass
class Study:
    """What is finished, and what can start; one row of results per evaluation."""

    out: Path
    made_with: dict[str, str]
    finished: set[Job] = field(default_factory=set)
    failed: set[Job] = field(default_factory=set)  # what depends on them is not run
    quality: dict[Job, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.results.exists():
            with self.results.open(newline="", encoding="utf-8") as file:
                for row in csv.DictReader(file):
                    self.note(row)

    @classmethod
    def of(cls, rows: Iterable[dict[str, Any]]) -> Study:
        """What these rows say; nothing is kept for it."""
        study = cls(Path(os.devnull), {})
        for row in rows:
            study.note(row)
        return study

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
            self.quality[job] = (float(row["macro_auc"]) + float(row["map"])) / 2

    def halfway(self, job: Job) -> Path:
        """Where a run writes what it has after half of its rounds."""
        name = f"{job.problem}-{job.row}-{job.seed}-{job.rounds}-{job.rate}"
        return self.out / "halfway" / f"{name.replace(' ', '_')}.csv"

    def least_rounds(self, job: Job) -> int:
        """Rounds after which something of a run can be kept."""
        in_half = job.phase == "final" and not follows_the_rounds(job.row)
        return job.rounds // 2 if in_half else job.rounds

    def keep_half(self, job: Job) -> bool:
        """Keep the first half of a final run that was cut off; say if it had one."""
        path = self.halfway(job)
        if job.phase != "final" or not path.exists():
            return False
        with path.open(newline="", encoding="utf-8") as file:
            self.keep([*csv.DictReader(file)], None)
        return True

    def keep(self, rows: list[dict[str, Any]], scores: Any) -> None:
        """Append rows and scores; a row names the place of its scores in the other file."""
        start, shape = 0, ""
        if scores is not None:
            with (self.out / "quilt_scores.f16").open("ab") as file:
                start = file.tell()
                file.write(scores.contiguous().numpy().tobytes())
            shape = "x".join(map(str, scores.shape))
        for row in rows:
            is_last = shape and row["round"] == row["rounds"] and row["served"] == GLOBAL
            row |= {"scores_at": start if is_last else "", "scores_shape": shape if is_last else ""}
            row |= self.made_with
        fresh = not self.results.exists()
        with self.results.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [*rows[0]], lineterminator="\n")
            if fresh:
                writer.writeheader()
            writer.writerows(rows)
        for row in rows:
            self.note(row)

    def rate(self, problem: str, row: str, plan: Sequence[Part] = ()) -> float | None:
        """The best learning rate on the tuning seed, by the longest runs of which all are there.

        It is not known before all tuning runs of the plan are, unless one of them failed.
        """
        source, of_row = PROBLEMS[problem].rates_from or problem, CARRIES_OVER.get(row, row)
        planned = [
            part.rounds or PROBLEMS[source].rounds
            for part in plan
            if (part.phase, part.problem) == ("tuning", source) and of_row in part.rows
        ]
        if any((job.problem, job.row) == (source, of_row) for job in self.failed):
            planned = []
        tried: dict[int, dict[float, float]] = {}
        for job in self.finished:
            if (job.phase, job.problem, job.row) == ("tuning", source, of_row):
                tried.setdefault(job.rounds, {})[job.rate] = self.quality[job]
        whole = [n for n, found in tried.items() if found.keys() >= set(PROBLEMS[source].rates)]
        if not whole or max(whole) < max(planned, default=0):
            return None
        found = tried[max(whole)]
        return max(sorted(found), key=lambda rate: found[rate])

    def best_candidate(self, problem: str) -> str | None:
        """The idea that is best on the tuning seed, once all were tried, some in vain."""
        screened = {
            job.row: self.quality.get(job, 0.0)
            for job in self.finished | self.failed
            if (job.phase, job.problem) == ("screening", problem)
        }
        if not screened.keys() >= set(CANDIDATES):
            return None
        return max(IDEAS, key=lambda row: screened[row])

    def jobs(self, plan: Sequence[Part]) -> Iterator[Job | None]:
        """Every job in order; None for one that waits for others."""
        screened_on = next((part.problem for part in plan if part.phase == "screening"), MAIN)
        for part in plan:
            problem = PROBLEMS[part.problem]
            for seed in part.seeds if part.phase == "final" else (TUNING_SEED,):
                for named in part.rows:
                    row = self.best_candidate(screened_on) if named == BEST else named
                    rates: tuple[float | None, ...] = problem.rates
                    if part.phase != "tuning":
                        rates = (None if row is None else self.rate(part.problem, row, plan),)
                    for rate in rates:
                        yield (
                            None
                            if rate is None or row is None
                            else Job(
                                phase=part.phase,
                                problem=part.problem,
                                row=row,
                                seed=seed,
                                rounds=part.rounds or problem.rounds,
                                rate=rate,
                            )
                        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="of data_sets")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True, help="for the whole command")
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--digits", action="store_true", help="the digits, instead of the rest")
    parser.add_argument("--shrink", type=int, help="rounds at most, to try the script")
    parser.add_argument("--only", help="problems with this in their name")
    options = parser.parse_args()
    end: float = time.monotonic() + options.seconds
    (options.out / "halfway").mkdir(parents=True, exist_ok=True)
    study = Study(options.out, made_with(options.device))
    plan = ON_DIGITS if options.digits else PLAN
    if options.only:
        plan = tuple(part for part in plan if options.only in part.problem)
    if options.shrink:
        plan = tuple(replace(part, rounds=options.shrink) for part in plan)
    running: dict[Future[Any], tuple[Job, float, Worker]] = {}
    pace: dict[str, list[float]] = {}  # by data: seconds of a round, while all workers are busy
    attempts: Counter[Job] = Counter()
    share = OF_THE_DEVICE / options.workers
    idle = [Worker(options.folder, options.device, share) for _ in range(options.workers)]

    def left() -> float:
        return end - time.monotonic()

    def start() -> bool:
        """Start the first job that is ready and fits into the time left; say if there was one."""
        begun = {job for job, *_ in running.values()} | study.finished | study.failed
        for job in study.jobs(plan):
            if job is None or job in begun:
                continue
            alike = sorted(pace.get(PROBLEMS[job.problem].data, [0.0]))
            if study.least_rounds(job) * alike[len(alike) // 2] > left() - 5:
                continue
            attempts[job] += 1
            worker = idle.pop()
            future = worker.begin(job, study.halfway(job))
            running[future] = (job, time.monotonic(), worker)
            return True
        return False

    while left() > 0:
        while idle and start():
            pass
        if not running:
            break
        done, _ = wait(running, timeout=max(left(), 0), return_when=FIRST_COMPLETED)
        for future in done:
            job, since, worker = running.pop(future)
            idle.append(worker)
            if error := future.exception():
                worker.restart()
                if attempts[job] == ATTEMPTS:
                    study.failed.add(job)
                print(f"FAILED {job}: {type(error).__name__} {str(error)[:300]}", flush=True)
                continue
            rows, scores, held = future.result()
            study.keep(rows, scores)
            if held > HELD_AT_MOST:
                worker.restart()
            of_data = pace.setdefault(PROBLEMS[job.problem].data, [])
            of_data.append((time.monotonic() - since) / job.rounds)
            last = next(row for row in reversed(rows) if row["served"] == GLOBAL)
            shown = (last[name] for name in ("macro_auc", "map", "seconds", "memory_MiB"))
            then = f"{options.seconds - left():5.0f}s"
            print(then, *vars(job).values(), *shown, f"held {held // 2**20}", flush=True)
    for worker in [*idle, *(worker for *_, worker in running.values())]:
        worker.kill()
    halves = sum(study.keep_half(job) for job, *_ in running.values())
    print(f"{len(running)} runs were cut off, {halves} of them after half", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
