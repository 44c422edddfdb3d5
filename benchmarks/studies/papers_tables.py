"""Ablation tables of papers on CIFAR-10 composites, in a limited time, seed by seed.

    python -m benchmarks.studies.papers_tables --photographs FOLDER --weights FILE --out FOLDER

FedMLP's Table 3 and FedLSM's Table 3 start from the weights of FILE (a ResNet-18 trained on
TinyImageNet), FedNCA-ML's Tables 7 and 8 from random ones, at 128 px. All are far shorter than in
the papers, on fewer and smaller images; ``PARTS`` says how. The results of a table are written
after each of its runs, and an interrupted study goes on where it was: only what ``--out`` lacks is
run. No run is started that would not end within ``--seconds``, going by the others of its table. A
run that fails, for instance because it needs more than its share of the GPU's memory, is tried once
more after all others. Fewer ``--slots`` need less memory. Two commands at a time, each with its own
``--tables``, can share the GPU and ``--out``.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness.table_runs import pack, unpack
from fedquilt.engines.options import SLOTS, EngineOptions
from fedquilt.recipes.papers import find_table
from fedquilt.recipes.papers.table import PublishedTable
from fedquilt.reports.reproduced import reproduced
from fedquilt.reports.reproduced_table import write_csv
from fedquilt.runs.parallel import RunPool
from fedquilt.runs.reproduction import CellRun, plan_runs

SEEDS = (0, 1, 2)
TEST = ("data.test_singles=200", "data.test_pairs=10")
FEW = ("data.singles=400", "data.pairs=20", *TEST, "method.training.lr=1e-4")
MORE = ("data.singles=600", "data.pairs=50", *TEST, "method.training.lr=5e-4")
TINY = ("data.singles=12", "data.pairs=2", "data.test_singles=4", "data.test_pairs=1")


@dataclass(frozen=True)
class Part:
    """A table on one choice of data, with its rows in the order in which they run.

    All are made to end within 15 minutes on an H200. Against the papers:

    - FedMLP, Table 3 (224 px, 500 rounds, the warm-up a tenth of them): 4,900 canvases of 64 px, 24
      rounds, 9 of them the warm-up, 1e-4 without weight decay, as in our Table 1.
    - FedLSM, Table 3 (320 px, 50 rounds): the same canvases, 12 rounds of 30 steps; its pools hold
      the paper's share of a client's images, which are 612 here.
    - FedNCA-ML, Tables 7 and 8 (224 px, 40,000 canvases, 100 rounds, 1e-4): 8,250 canvases of 128
      px, so 4 x 4 places instead of 7 x 7, 24 rounds, and 5e-4 because there are so few steps.
    """

    table: str
    data: str
    rounds: int
    rows: str
    settings: tuple[str, ...]
    pretrained: bool

    @property
    def file(self) -> str:
        return f"{self.table}_{self.data}".replace("/", "_").replace("-", "_")


PARTS = (
    Part(
        "fedmlp/table3",
        "cifar10",
        24,
        "fedavg,mld,wpc,cr,st",
        FEW,
        pretrained=True,
    ),
    Part(
        "fedlsm/table3",
        "cifar10",
        12,
        "fedlsm,without-awpa,without-ude,without-ue",
        (
            *FEW,
            "method.training.steps=30",
            "method.uncertain_images=32",
            "method.certain_images=129",
        ),
        pretrained=True,
    ),
    Part(
        "fednca-ml/table7",
        "cifar10-128",
        24,
        "all,fc,ladm,pos,neg,etf",
        MORE,
        pretrained=False,
    ),
    Part(
        "fednca-ml/table8",
        "cifar10-128",
        24,
        "fixed-etf,learnable-etf,learnable-random",
        MORE,
        pretrained=False,
    ),
)


@dataclass
class Study:
    """The tables, their runs, where their files go, and how long a run of each takes."""

    out: Path
    command: str
    tables: dict[Part, tuple[PublishedTable, list[CellRun], Path]]
    took: dict[Path, list[float]] = field(default_factory=dict)  # seconds, by folder of a table

    def to_run(self) -> list[CellRun]:
        """What is waiting; a recipe that is in two tables is run once."""
        first: dict[str, CellRun] = {}
        for run in self.waiting():
            first.setdefault(run.recipe.hash, run)
        return [*first.values()]

    def waiting(self) -> Iterator[CellRun]:
        """Yield what is not finished: every table with the first seed, then with the next one."""
        for seed in SEEDS:
            for _, runs, _ in self.tables.values():
                yield from (run for run in runs if run.seed == seed and not run.is_finished)

    def read(self) -> None:
        """Take over the results of an earlier command."""
        for part, (_, _, folder) in self.tables.items():
            if (stored := self.out / f"{part.file}_runs.csv").exists():
                unpack(stored, folder)
        self._share()

    def _share(self) -> None:
        """Copy results to the other tables that have the same recipe."""
        runs = [run for _, own, _ in self.tables.values() for run in own]
        finished = {run.recipe.hash: run for run in runs if run.is_finished}
        for run in runs:
            if not run.is_finished and run.recipe.hash in finished:
                run.folder.path.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(finished[run.recipe.hash].folder.result, run.folder.result)

    def write(self) -> None:
        for part, (table, runs, folder) in self.tables.items():
            if any(run.is_finished for run in runs):
                self.out.mkdir(parents=True, exist_ok=True)
                summary = reproduced(table, runs)
                write_csv(summary, self.out / f"{part.file}.csv", self.command)
                pack(folder, self.out / f"{part.file}_runs.csv")

    def keep(self, run: CellRun, seconds: float) -> None:
        self.took.setdefault(_folder_of_table(run), []).append(seconds)
        shutil.rmtree(run.folder.checkpoints, ignore_errors=True)  # all of them would fill the disk
        self._share()
        self.write()

    def likely_seconds(self, run: CellRun) -> float:
        """The median of the ended runs of its table; 0 as long as none has ended."""
        return statistics.median(self.took.get(_folder_of_table(run), [0.0]))


def _folder_of_table(run: CellRun) -> Path:
    return run.folder.path.parent.parent


def planned(options: argparse.Namespace, folder: Path) -> Study:
    tables = {}
    for part in _chosen(options.tables):
        changes = [*part.settings, "checkpoint_every=1000"]  # a run that was cut off starts anew
        if options.device != "cpu":
            changes.append("method.training.precision=bfloat16")
        if part.pretrained and options.weights:
            changes.append(f"model.weights={options.weights}")
        if options.tiny:
            changes += [*TINY, "method.training.steps=1", "model.small_stem=false"]
            changes += ["partition.smallest_client=1"] * (not part.pretrained)
        table = find_table(part.table, part.data, 1 if options.tiny else part.rounds)
        cells, own = table.cells([part.rows]), folder / part.table.replace("/", "-")
        if len(table.choice.columns) > 1:
            cells = table.cells([f"{part.rows}/{table.choice.columns[0].name}"])
        runs = plan_runs(table, cells, SEEDS, own, folder=options.photographs, changes=changes)
        tables[part] = (table, runs, own)
    study = Study(options.out, _command(options), tables)
    study.read()
    return study


def _chosen(names: Sequence[str]) -> Iterator[Part]:
    """The parts in the order of ``names``; all of them if there is none."""
    by_name = {part.table: part for part in PARTS}
    yield from (by_name[name] for name in names or by_name)


def _command(options: argparse.Namespace) -> str:
    tiny = " --tiny" if options.tiny else ""
    return (
        "python -m benchmarks.studies.papers_tables --photographs FOLDER --weights FILE "
        f"--workers {options.workers} --slots {options.slots} --seconds {options.seconds} "
        f"--device {options.device}{tiny}"
    )


def run(options: argparse.Namespace) -> None:
    end: float = time.monotonic() + options.seconds

    def left() -> float:
        return end - time.monotonic()

    with tempfile.TemporaryDirectory() as scratch:
        study = planned(options, Path(scratch) / "runs")
        waiting = study.to_run()
        print(f"{len(waiting)} runs planned, {left():.0f} s left", flush=True)
        started: dict[Path, tuple[CellRun, float]] = {}
        again: set[Path] = set()
        try:
            with RunPool(
                cache=options.cache,
                workers=options.workers,
                devices=(options.device,),
                engine=EngineOptions(slots=options.slots),
            ) as pool:
                while True:
                    while pool.has_room:
                        fits = (r for r in waiting if study.likely_seconds(r) < left())
                        if (chosen := next(fits, None)) is None:
                            break
                        waiting.remove(chosen)
                        started[chosen.folder.path] = (chosen, left())
                        pool.submit(chosen.recipe, chosen.folder.path)
                    for folder, error in pool.finished():
                        ended, then = started[folder]
                        _say(ended, error, options.seconds - left())
                        if error is None:
                            study.keep(ended, then - left())
                        elif folder not in again:
                            again.add(folder)
                            waiting.append(ended)
                    if left() < 0:
                        raise TimeoutError
                    if pool.is_idle and not any(study.likely_seconds(r) < left() for r in waiting):
                        break
        except TimeoutError:
            print("the time is up; what still ran was stopped")
        study.write()
        missing = sum(1 for _ in study.waiting())
        print(f"{missing} runs are missing after {options.seconds - left():.0f} s", flush=True)


def _say(run: CellRun, error: BaseException | None, seconds: float) -> None:
    table = _folder_of_table(run).name
    if error is not None:
        print(f"{seconds:5.0f} s FAILED {table} {run.cell.name}: {str(error)[:200]}", flush=True)
        return
    metrics = run.result["metrics"]
    numbers = ", ".join(f"{name} {100 * metrics[name]:.1f}" for name in ("macro_auc", "macro_f1"))
    took = run.result["seconds"]
    print(
        f"{seconds:5.0f} s {table} {run.cell.name} seed {run.seed}: {numbers}, {took:.0f} s",
        flush=True,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photographs", type=Path, required=True, help="folder of CIFAR-10")
    parser.add_argument("--weights", type=Path, help="of a ResNet-18, .safetensors")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path(".cache") / "fedquilt")
    parser.add_argument("--tables", nargs="+", default=[], choices=[part.table for part in PARTS])
    parser.add_argument("--seconds", type=float, default=480)
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--slots", type=int, default=SLOTS, help="clients of a run at a time")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a step of each run, to try it")
    run(parser.parse_args(arguments))


if __name__ == "__main__":
    main()
