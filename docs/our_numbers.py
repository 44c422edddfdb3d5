"""Our numbers for the pages of papers, from ``benchmarks/results/tables``."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from docs.markdown import markdown_table, wrapped

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "tables"
LINK = "../../benchmarks/results/tables"  # from a page
# How runs differ from the recipe: it was another one then, or they are shorter.
OTHERWISE = {
    "fedmlp_table1_cifar10": "24 rounds; FedMLP is the form that is now fedmlp-repaired",
    "fedlsm_table1_digits": "the rows with a star masked blanks, and rows weighted classes "
    "differently",
    "fedlsm_table2_digits": "all rows but FedPU and one of FedLSM had a sigmoid per class",
    "fednca_ml_ablation_cifar10": "50 rounds",
    "fedmlp_table3_cifar10": "24 rounds, 4,900 canvases, pretrained weights, 1e-4",
    "fedlsm_table3_cifar10": "12 rounds of 30 steps, 4,900 canvases, pretrained weights, smaller "
    "pools; FedLSM has seed 2 too",
    "fednca_ml_table7_cifar10_128": "24 rounds, 8,250 canvases, 5e-4; ETF only, Neg and Pos lack "
    "seed 2",
    "fednca_ml_table8_cifar10_128": "24 rounds, 8,250 canvases, 5e-4; random queries lack seed 2",
    "fednca_ml_table1_cifar10": "the centralised bound lost its optimizer's state after every "
    "round",
}


class Ours(NamedTuple):
    """Our numbers in one file: (row's label, column, metric) -> mean and deviation."""

    name: str
    data: str
    numbers: Mapping[tuple[str, str, str], str]
    seeds: str
    commands: tuple[str, ...]


def our_runs(name: str) -> list[Ours]:
    """Our runs of a table, by data; an older file may have the table's former name."""
    stem = name.replace("/", "_").replace("-", "_")
    stems = (stem, "fednca_ml_ablation") if name == "fednca-ml/table7" else (stem,)
    paths = [
        path
        for each in stems
        for path in sorted(RESULTS.glob(f"{each}_*.csv"))
        if not path.stem.endswith("_runs")
    ]
    return [_read(path) for path in paths]


def _read(path: Path) -> Ours:
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    numbers = {}
    for line in lines:
        spread = f" ± {line['deviation']}" if line["deviation"] else ""
        numbers[_label(path.stem, line["method"]), line["column"], line["metric"]] = (
            f"{line['ours']}{spread}"
        )
    seeds = sorted({line["seeds"] for line in lines})
    commands = tuple(dict.fromkeys(line["command"] for line in lines))
    return Ours(path.stem, lines[0]["data"], numbers, " or ".join(seeds), commands)


def _label(file: str, method: str) -> str:
    """Today's label of a row; FedMLP's first table was run with the form that is repaired."""
    if (file, method) == ("fedmlp_table1_cifar10", "FedMLP"):
        return "FedMLP, our form"
    return method


def sources(ours: Sequence[Ours]) -> list[str]:
    if not ours:
        return ["None of our runs of this table is stored."]
    rows = []
    for each in ours:
        link = f"[{each.name}.csv]({LINK}/{each.name}.csv)"
        commands = "; ".join(f"`{command}`" for command in each.commands)
        rows.append((link, each.data, each.seeds, commands, OTHERWISE.get(each.name, "")))
    columns = ("our runs", "data", "seeds", "command", "differs from the recipe above")
    return [
        wrapped(
            "Ours are means over seeds ± their standard deviation. On other data than the paper's "
            "compare the order of rows, not the values."
        ),
        markdown_table(columns, rows),
    ]


def files(name: str) -> list[Path]:
    return sorted(RESULTS.glob(f"{name.replace('/', '_').replace('-', '_')}_*.csv"))


def note(name: str) -> str:
    return ", ".join(f"[{path.name}]({LINK}/{path.name})" for path in files(name))


def counts(path: Path) -> str:
    """Annotated positives of each class at each client: ours / the paper's."""
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    found = {
        (line["class"], line["client"]): f"{line['ours']} / {line['published']}" for line in lines
    }
    clients = sorted({client for _, client in found})
    classes = dict.fromkeys(name for name, _ in sorted(found))
    rows = [(name, *(found.get((name, client), "") for client in clients)) for name in classes]
    return markdown_table(("ours / the paper's", *(f"client {client}" for client in clients)), rows)
