"""The study's rows: read from the folders that runs wrote, as they are tabled, and as committed."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmarks.studies.quilt.one_run import GLOBAL
from benchmarks.studies.quilt.problems import follows_the_rounds

SHORTEST = 16  # rounds of a run that counts; what was cut off may be shorter
LONG = 80  # rounds, of which the first half is a run as well
MINE = ("folder", "scores_at", "scores_shape")  # columns that only say where scores are
OF_THE_RUN = (  # or long, and of interest after the last round only
    *("auc_per_class", "ap_per_class", "trust", "seconds_in_rounds", "seconds"),
    *("date", "command", "hardware", "versions"),
)
EVALUATION = ("phase", "problem", "row", "seed", "rounds", "rate", "round", "served")

Row = dict[str, str]


def read(folders: Iterable[Path]) -> list[Row]:
    """The rows of all folders; of a run that is in several, those of the first."""
    found: dict[tuple[str, ...], Row] = {}
    for folder in folders:
        with (folder / "quilt_runs.csv").open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                key = tuple(row[name] for name in EVALUATION)
                found.setdefault(key, row | {"folder": str(folder)})
    return [*found.values()]


def kept(rows: Sequence[Row]) -> list[Row]:
    """The rows as they are committed: without scores, and facts of the run with its last round."""
    return [
        {
            name: "" if name in OF_THE_RUN and not _is_last(row) else value
            for name, value in (row | {"command": _anywhere(row.get("command", ""))}).items()
            if name not in MINE
        }
        for row in rows
    ]


def _anywhere(command: str) -> str:
    """The command without the folders of a machine."""
    return re.sub(r"--(out|folder) /\S+", r"--\1 FOLDER", command)


def _is_last(row: Row) -> bool:
    return row["round"] == row["rounds"] and row["served"] == GLOBAL


def finals(rows: Sequence[Row], rate: Callable[[str, str], float | None]) -> list[Row]:
    """The final runs' rows at the row's learning rate, with the rounds in the problem's name.

    A run at another rate was begun when some of the rates had failed; a row with one seed was cut
    off. The first half of a long run is added as a run, unless its method's schedule follows the
    rounds.
    """
    final = [
        row
        for row in rows
        if row["phase"] == "final" and float(row["rate"]) == rate(row["problem"], row["row"])
        if int(row["rounds"]) >= SHORTEST
    ]
    seeds = Counter(_run(row)[:3] for row in final if _is_last(row))
    final = [row for row in final if seeds[_run(row)[:3]] > 1]
    ran = {_run(row) for row in final}
    halves = [
        half
        for row in final
        if row["rounds"] == str(LONG) and not follows_the_rounds(row["row"])
        if _run(half := _in_half(row)) not in ran and 2 * int(half["round"]) <= LONG
    ]
    return [
        row | {"problem": f"{row['problem']}, {row['rounds']} rounds", "base": row["problem"]}
        for row in final + halves
    ]


def _run(row: Row) -> tuple[str, ...]:
    return tuple(row[name] for name in ("problem", "row", "rounds", "seed"))


def _in_half(row: Row) -> Row:
    unknown = dict.fromkeys(("seconds_in_rounds", "seconds", "trust", "scores_at"), "")
    rounds = int(row["rounds"]) // 2
    return row | unknown | {"rounds": str(rounds), "bytes_up": str(int(row["bytes_up"]) // 2)}
