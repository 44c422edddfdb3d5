"""Tables and pictures of the study, from the rows that runs wrote.

    python -m benchmarks.studies.quilt.tables --runs FOLDER [FOLDER ...] [--folder carry/22]

A row's difference from FedAvg-PL, and that of QUILT, on one view and on both, from every row, are
paired by seed: a t interval, and Holm's correction over the rows of a problem. With the carried
data also intervals for other patients. Ranks count the problems in which every row ran.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from benchmarks.harness.result_csv import write_results
from benchmarks.studies.quilt.data_sets import tested_radiographs
from benchmarks.studies.quilt.kept_rows import Row, finals, kept, read
from benchmarks.studies.quilt.one_run import AVERAGE, GLOBAL
from benchmarks.studies.quilt.plan import (
    CORE,
    DIGITS,
    MAIN,
    PAIR,
    PUBLISHED,
    RADIOGRAPHS,
    RELATIVES,
    SCENES,
)
from benchmarks.studies.quilt.runs import Study
from fedquilt.metrics.across_data_sets import friedman
from fedquilt.metrics.across_seeds import seed_difference, variance_with_seeds
from fedquilt.metrics.labelled_images import LabelledImages
from fedquilt.metrics.paired import holm, normal_difference
from fedquilt.metrics.placements import sum_of_squares
from fedquilt.reports.data_set_comparison import MIN_DATA_SETS, save_rank_picture
from fedquilt.reports.style import line_style, new_figure, picture_style, prepare_round_axes, save

METRICS = ("macro_auc", "map", "bacc")
BASE, OURS, TWICE, BOUND = "FedAvg-PL", "QUILT", "QUILT, both views", "full labels"
PICTURES = Path(__file__).parents[3] / "docs" / "pictures"
Values = dict[str, dict[str, dict[int, float]]]  # problem -> row -> seed -> a metric in percent


def values(rows: Sequence[Row], metric: str, served: str = GLOBAL) -> Values:
    found: Values = {}
    for row in _last(rows, served):
        of_row = found.setdefault(row["problem"], {}).setdefault(row["row"], {})
        of_row[int(row["seed"])] = float(row[metric])
    return found


def _last(rows: Sequence[Row], served: str = GLOBAL) -> list[Row]:
    return [row for row in rows if (row["served"], row["round"]) == (served, row["rounds"])]


def means(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """A row per problem and method: metrics over seeds, share of the gap closed, and costs."""
    of_metric = {metric: values(rows, metric) for metric in METRICS}
    averaged = {metric: values(rows, metric, AVERAGE) for metric in METRICS}
    table = []
    for problem, methods in of_metric["macro_auc"].items():
        for name, by_seed in methods.items():
            runs = [row for row in _last(rows) if (row["problem"], row["row"]) == (problem, name)]
            line: dict[str, Any] = {
                "problem": problem,
                "row": name,
                "rate": runs[0]["rate"],
                "seeds": len(by_seed),
            }
            for metric in METRICS:
                found = [*of_metric[metric][problem][name].values()]
                line[metric] = round(fmean(found), 2)
                line[f"{metric}_sd"] = round(stdev(found), 2) if len(found) > 1 else ""
                served = [*averaged[metric].get(problem, {}).get(name, {}).values()]
                line[f"{metric}_of_average"] = round(fmean(served), 2) if served else ""
            for metric in METRICS[:2]:
                line[f"gap_closed_{metric}"] = _gap_closed(of_metric[metric][problem], name)
            for cost in ("bytes_up", "seconds_in_rounds", "memory_MiB"):
                known = [float(run[cost]) for run in runs if run[cost]]
                line[cost] = round(fmean(known), 1) if known else ""
            line["trained_on"] = "; ".join(sorted({run["hardware"] for run in runs}))
            table.append(line)
    return table


def _gap_closed(methods: Mapping[str, Mapping[int, float]], name: str) -> float | str:
    """The share of the way from FedAvg-PL to full labels, over the seeds that all three have."""
    if not {BASE, BOUND} <= methods.keys():
        return ""
    seeds = methods[name].keys() & methods[BASE].keys() & methods[BOUND].keys()
    ours, base, bound = (sum(methods[each][seed] for seed in seeds) for each in (name, BASE, BOUND))
    return round((ours - base) / (bound - base), 3) if bound != base else ""


def differences(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Paired by seed: every row minus FedAvg-PL, and QUILT and QUILT on both views minus each."""
    table = []
    for metric in METRICS:
        for problem, methods in values(rows, metric).items():
            rivals = [name for name in methods if name not in (BASE, BOUND)]
            families = [[(name, BASE) for name in rivals if BASE in methods]]
            families += [
                [(ours, name) for name in rivals if name != ours]
                for ours in (OURS, TWICE)
                if ours in methods
            ]
            for pairs in families:
                found = [
                    seed_difference(_paired(methods[ours], methods[theirs]))
                    for ours, theirs in pairs
                ]
                corrected = holm([each.p for each in found])
                for (ours, theirs), each, p in zip(pairs, found, corrected):
                    table.append(
                        {
                            "problem": problem,
                            "metric": metric,
                            "row": ours,
                            "against": theirs,
                            "seeds": len(each.values),
                            "better_on": sum(value > 0 for value in each.values),
                            "mean": round(each.mean, 2),
                            "low": round(each.low, 2),
                            "high": round(each.high, 2),
                            "p": f"{each.p:.3g}",
                            "p_holm": f"{p:.3g}",
                        }
                    )
    return table


def _paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> list[float]:
    return [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]


def over_patients(rows: Sequence[Row], folder: Path) -> list[dict[str, Any]]:
    """QUILT minus every row on the radiographs, with an interval for other patients and seeds.

    A patient whose images several seeds tested counts with the mean of what it adds.
    """
    chosen = [row for row in _last(rows) if row["base"] == RADIOGRAPHS]
    gathered: dict[str, dict[int, Any]] = {}
    everyone = 0
    for row in chosen:
        labels, patients, everyone = tested_radiographs(folder, int(row["seed"]))
        images = LabelledImages(labels, np.ones_like(labels, dtype=bool), patients)
        scores = _scores(row)
        gathered.setdefault(row["row"], {})[int(row["seed"])] = [
            *(each for each in images.influences([scores]))
        ]
    table: list[dict[str, Any]] = []
    for name, by_seed in gathered.items():
        if name in (OURS, BOUND) or OURS not in gathered:
            continue
        seeds = sorted(by_seed.keys() & gathered[OURS].keys())
        gaps, added = [], np.zeros(everyone)
        for seed in seeds:
            pairs = [*zip(gathered[OURS][seed], by_seed[seed])]
            gaps.append(100 * fmean(ours.auc - theirs.auc for ours, theirs in pairs))
            gap = np.mean([ours.of_patients - theirs.of_patients for ours, theirs in pairs], axis=0)
            added[: len(gap)] += 100 * gap / len(seeds)
        found = normal_difference(fmean(gaps), variance_with_seeds(gaps, sum_of_squares(added)))
        table.append(
            {
                "problem": RADIOGRAPHS,
                "metric": "macro_auc",
                "row": OURS,
                "against": name,
                "seeds": len(seeds),
                "patients": int((added != 0).sum()),
                "mean": round(found.value, 2),
                "low": round(found.low, 2),
                "high": round(found.high, 2),
                "p": f"{found.p:.3g}",
            }
        )
    for line, p in zip(table, holm([float(line["p"]) for line in table])):
        line["p_holm"] = f"{p:.3g}"
    return table


def _scores(row: Row) -> Any:
    shape = tuple(map(int, row["scores_shape"].split("x")))
    with (Path(row["folder"]) / "quilt_scores.f16").open("rb") as file:
        file.seek(int(row["scores_at"]))
        read = file.read(2 * int(np.prod(shape)))
    return np.frombuffer(read, dtype=np.float16).reshape(shape).astype(np.float64)


def ranks(rows: Sequence[Row], metric: str, rivals: Sequence[str]) -> dict[str, Any] | None:
    """Friedman's test over the problems in which every rival ran.

    Of a problem with several numbers of rounds, the largest counts; of seeds those of all rivals.
    """
    whole = {
        problem: methods
        for problem, methods in values(rows, metric).items()
        if set(rivals) <= methods.keys()
    }
    longest: dict[str, str] = {}
    for row in sorted(rows, key=lambda row: int(row["rounds"])):
        if row["problem"] in whole:
            longest[row["base"]] = row["problem"]
    table = {problem: _on_common_seeds(whole[problem], rivals) for problem in longest.values()}
    if len(table) < 2:
        return None
    found = friedman([[row[name] for name in rivals] for row in table.values()])
    return {
        "data_sets": table,
        "mean_ranks": dict(zip(rivals, found.mean_ranks)),
        "critical_difference": found.critical_difference,
        "words": f"{len(table)} problems",
        "p": found.f_p,
    }


def _on_common_seeds(
    methods: Mapping[str, Mapping[int, float]], rivals: Sequence[str]
) -> dict[str, float]:
    """The means over the seeds that every rival has."""
    seeds = set.intersection(*(set(methods[name]) for name in rivals))
    return {name: round(fmean(methods[name][seed] for seed in seeds), 2) for name in rivals}


def ranked(rows: Sequence[Row], metric: str) -> list[dict[str, Any]]:
    """Ranks of all but the bound and the ablation, and of the rows that ran on every problem.

    The picture is of the first that ran on enough problems.
    """
    written: list[dict[str, Any]] = []
    is_drawn = False
    for rivals in ((*PAIR, TWICE, *RELATIVES, *PUBLISHED), (*CORE, TWICE)):
        if (found := ranks(rows, metric, rivals)) is None:
            continue
        written += [
            {"metric": metric, "problem": problem, **row}
            for problem, row in found["data_sets"].items()
        ]
        facts = {"critical_difference": found["critical_difference"], "p": found["p"]}
        written.append({"metric": metric, "problem": "mean rank", **found["mean_ranks"], **facts})
        if len(found["data_sets"]) >= MIN_DATA_SETS and not is_drawn:
            save_rank_picture(found, PICTURES / f"quilt_ranks_{metric}.png")
            is_drawn = True
    return written


def save_curves(rows: Sequence[Row], path: Path) -> None:
    """Draw AUC and mAP over rounds, the mean of the seeds, for up to three problems."""
    shown = [p for p in (MAIN, SCENES, DIGITS) if any(row["base"] == p for row in rows)]
    with picture_style():
        figure = new_figure(9, 2.9 * len(shown) + 0.6)
        grid = figure.subplots(len(shown), 2, squeeze=False)
        for problem, pair in zip(shown, grid):
            for axes, metric, heading in zip(pair, METRICS, ("AUC", "mAP")):
                prepare_round_axes(axes, f"{problem}: {heading} (%)")
                for position, name in enumerate((*CORE, TWICE, *RELATIVES, *PUBLISHED)):
                    if points := _curve(rows, problem, name, metric):
                        look = line_style(position, len(points))
                        axes.plot([*points], [*points.values()], label=name, **look)
        handles = grid[0][0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower left", ncols=4)
        save(figure, path)


def _curve(rows: Sequence[Row], problem: str, name: str, metric: str) -> dict[int, float]:
    """The mean of a row's longest runs after each evaluated round."""
    runs = [
        row for row in rows if (row["base"], row["row"], row["served"]) == (problem, name, GLOBAL)
    ]
    longest = max((int(row["rounds"]) for row in runs), default=0)
    points: dict[int, list[float]] = {}
    for row in runs:
        if int(row["rounds"]) == longest:
            points.setdefault(int(row["round"]), []).append(float(row[metric]))
    return {after: fmean(found) for after, found in sorted(points.items())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, nargs="+", required=True)
    parser.add_argument("--folder", type=Path, help="of data_sets, for intervals over patients")
    options = parser.parse_args()
    everything = read(options.runs)
    write_results("studies/quilt_runs", [], earlier=kept(everything))
    rows = finals(everything, Study.of(everything).rate)
    write_results("studies/quilt", means(rows))
    write_results("studies/quilt_differences", differences(rows))
    if options.folder:
        write_results("studies/quilt_patients", over_patients(rows, options.folder))
    write_results("studies/quilt_ranks", [row for m in METRICS[:2] for row in ranked(rows, m)])
    save_curves(rows, PICTURES / "quilt_curves.png")


if __name__ == "__main__":
    main()
