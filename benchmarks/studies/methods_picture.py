"""Plot ``methods_compared.csv``: the lead of each method over FedAvg with the same random seed.

    python -m benchmarks.studies.methods_picture PICTURE.png

Small dots are single seeds, large ones their mean.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.harness.result_csv import read_results
from benchmarks.studies.methods_compared import BASELINES, DESIGNED_FOR, MISSING, STUDIED
from fedquilt.reports.style import MUTED_COLOUR, line_style, new_figure, picture_style, save

TITLES = {"cifar10": "CIFAR-10 composites", "scenes": "MIML scenes"}
LABELS = {True: "in the setting it was designed for", False: "with missing classes"}
Cells = Mapping[tuple[str, str, str], list[float]]  # data, setting, method: AUC by seed


def read_cells() -> Cells:
    return {
        (row["data"], row["setting"], row["method"]): [
            float(value) for value in row["macro_auc_per_seed"].split()
        ]
        for row in read_results("studies/methods_compared")
    }


def lead(cells: Cells, data: str, setting: str, method: str) -> list[float]:
    own, plain = cells[data, setting, method], cells[data, setting, "fedavg"]
    return [value - other for value, other in zip(own, plain, strict=True)]


def draw(axes: Any, cells: Cells, data: str) -> None:
    methods = [*STUDIED, *(name for name in BASELINES if name != "fedavg")]
    home = {name: each for each, names in reversed(DESIGNED_FOR.items()) for name in names}
    for place, method in enumerate(methods):
        for is_home in (True, False):
            if is_home and method not in STUDIED:
                continue
            setting = home[method] if is_home else MISSING
            if (data, setting, method) not in cells:  # not run
                continue
            values = lead(cells, data, setting, method)
            height = place + (-0.15 if is_home else 0.15)
            colour = line_style(0 if is_home else 1, 0)["color"]
            axes.plot(values, [height] * len(values), ".", color=colour, alpha=0.5, markersize=4)
            label = LABELS[is_home] if place == 0 else None
            axes.plot(fmean(values), height, "o" if is_home else "D", color=colour, label=label)
    axes.axvline(0, color=MUTED_COLOUR)
    axes.set_title(TITLES[data])
    axes.set_xlabel("macro-AUC minus FedAvg's (points)")
    axes.set_xscale("symlog", linthresh=5)  # Site-aware is far off
    axes.set_xlim(-40, 25)
    ticks = (-20, -10, -5, -2, 0, 2, 5, 10)
    axes.set_xticks(ticks, [f"{tick:+d}" if tick else "0" for tick in ticks])
    axes.set_yticks(range(len(methods)), methods)
    axes.set_ylim(len(methods) - 0.5, -0.5)
    axes.grid(visible=True)


def main() -> None:
    cells = read_cells()
    with picture_style():
        figure = new_figure(9.2, 4.6)
        panels: Any = figure.subplots(1, len(TITLES), sharey=True)
        for axes, data in zip(panels, TITLES):
            draw(axes, cells, data)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower left", ncols=2)
        save(figure, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
