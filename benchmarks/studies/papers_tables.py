"""Ablation tables of papers on CIFAR-10 composites, in a limited time, most telling runs first.

    python -m benchmarks.studies.papers_tables --photographs FOLDER --weights FILE --out FOLDER

FedMLP's Table 3 and FedLSM's Table 3 start from the weights of FILE (a ResNet-18 trained on
TinyImageNet), FedNCA-ML's Tables 7 and 8 from random ones, at 128 px. All are shorter than in the
papers, on fewer images; ``PARTS`` says how. No run is started after ``--seconds`` less ``--last``,
and what still runs at the end is stopped. A run that fails, for instance because others have the
memory of the GPU (a run takes up to 14 GiB of it), is tried once more after all others. The files
of a table, written after each of its runs, are those of ``fedquilt reproduce``, with all results in
``runs.csv``.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.table_runs import pack
from fedquilt.recipes.papers import find_table
from fedquilt.recipes.papers.table import PublishedTable
from fedquilt.reports.reproduced import reproduced
from fedquilt.reports.reproduced_table import write_reproduced
from fedquilt.runs.parallel import RunPool
from fedquilt.runs.reproduction import CellRun, plan_runs

SEEDS = (0, 1, 2)
FEW = ("data.singles=400", "data.pairs=20", "data.test_singles=200", "data.test_pairs=10")
MORE = ("data.singles=700", "data.pairs=60", "data.test_singles=200", "data.test_pairs=20")
TINY = ("data.singles=12", "data.pairs=2", "data.test_singles=4", "data.test_pairs=1")


@dataclass(frozen=True)
class Part:
    """A table on one choice of data, with its rows in the order in which they run."""

    table: str
    data: str
    rounds: int
    rows: str
    settings: tuple[str, ...]
    pretrained: bool


PARTS = (
    Part(
        "fedmlp/table3",
        "cifar10",
        24,
        "fedavg,mld,wpc,cr,st",
        (*FEW, "method.training.lr=1e-4"),
        pretrained=True,
    ),
    Part(
        "fedlsm/table3",
        "cifar10",
        15,
        "fedlsm,without-awpa,without-ude,without-ue",
        (*FEW, "method.training.lr=1e-4", "method.training.steps=30"),
        pretrained=True,
    ),
    Part(
        "fednca-ml/table7",
        "cifar10-128",
        40,
        "all,fc,ladm,pos,neg,etf",
        (*MORE, "method.training.epochs=2", "method.training.lr=2e-4"),
        pretrained=False,
    ),
    Part(
        "fednca-ml/table8",
        "cifar10-128",
        40,
        "fixed-etf,learnable-etf,learnable-random",
        (*MORE, "method.training.epochs=2", "method.training.lr=2e-4"),
        pretrained=False,
    ),
)


@dataclass
class Study:
    """The tables, their runs, and where their files go."""

    out: Path
    command: str
    tables: dict[str, tuple[PublishedTable, list[CellRun], Path]]

    def waiting(self) -> Iterator[CellRun]:
        """Yield all runs: every table with the first seed, then with the next one."""
        for seed in SEEDS:
            for _, runs, _ in self.tables.values():
                yield from (run for run in runs if run.seed == seed)

    def write(self) -> None:
        for name, (table, runs, folder) in self.tables.items():
            if any(run.is_finished for run in runs):
                target = self.out / name.replace("/", "-")
                target.mkdir(parents=True, exist_ok=True)
                write_reproduced(reproduced(table, runs), target, self.command)
                pack(folder, target / "runs.csv")


def planned(options: argparse.Namespace, folder: Path) -> Study:
    tables = {}
    for part in PARTS:
        changes = list(part.settings)
        if options.device != "cpu":
            changes.append("method.training.precision=bfloat16")
        if part.pretrained and options.weights:
            changes.append(f"model.weights={options.weights}")
        if options.tiny:
            changes += [*TINY, "method.training.steps=1", "model.small_stem=false"]
            changes += ["partition.smallest_client=1"] * part.table.startswith("fednca")
        table = find_table(part.table, part.data, 1 if options.tiny else part.rounds)
        cells, own = table.cells([part.rows]), folder / part.table.replace("/", "-")
        if len(table.choice.columns) > 1:
            cells = table.cells([f"{part.rows}/{table.choice.columns[0].name}"])
        runs = plan_runs(table, cells, SEEDS, own, folder=options.photographs, changes=changes)
        tables[part.table] = (table, runs, own)
    return Study(options.out, _command(options), tables)


def _command(options: argparse.Namespace) -> str:
    tiny = " --tiny" if options.tiny else ""
    return (
        "python -m benchmarks.studies.papers_tables --photographs FOLDER --weights FILE "
        f"--workers {options.workers} --seconds {options.seconds} --device {options.device}{tiny}"
    )


def run(options: argparse.Namespace) -> None:
    start = time.monotonic()

    def passed() -> float:
        return time.monotonic() - start

    with tempfile.TemporaryDirectory() as scratch:
        study = planned(options, Path(scratch) / "runs")
        waiting = list(study.waiting())
        cache = Path(scratch) / "cache"
        for source in {repr(run.recipe.data): run.recipe.data for run in waiting}.values():
            source.load(cache)
        print(f"{len(waiting)} runs planned, data painted after {passed():.0f} s", flush=True)
        by_folder = {each.folder.path: each for each in waiting}
        again: set[Path] = set()
        try:
            with RunPool(cache=cache, workers=options.workers, devices=(options.device,)) as pool:
                while waiting or not pool.is_idle:
                    while waiting and pool.has_room and passed() < options.seconds - options.last:
                        first = waiting.pop(0)
                        pool.submit(first.recipe, first.folder.path)
                    ended = pool.finished()
                    for folder, error in ended:
                        _say(by_folder[folder], error, passed())
                        if error is not None and folder not in again:
                            again.add(folder)
                            waiting.append(by_folder[folder])
                    if ended:
                        study.write()
                    if passed() > options.seconds or (
                        pool.is_idle and passed() > options.seconds - options.last
                    ):
                        raise TimeoutError
        except TimeoutError:
            print(f"stopped after {passed():.0f} s; {len(waiting)} runs were not started")
        study.write()


def _say(run: CellRun, error: BaseException | None, seconds: float) -> None:
    table = run.folder.path.parent.parent.name
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
    parser.add_argument("--seconds", type=float, default=480)
    parser.add_argument("--last", type=float, default=40, help="no run starts so late")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a step of each run, to try it")
    run(parser.parse_args(arguments))


if __name__ == "__main__":
    main()
