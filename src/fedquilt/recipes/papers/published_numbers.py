"""Numbers published in papers, in percent, and how to read them by row, column and metric."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Numbers = dict[str, dict[str, dict[str, float]]]  # row -> column -> metric -> percent

AVERAGE = "average"  # over the columns; papers often print it as a column

# FedMLP, Table 1: BACC/AUC/mAP, columns with 1, 2, 3 and 4 of 5 classes missing
FEDMLP_ICH = """
fedavg      74.58/90.65/70.32 66.13/88.85/64.76 58.64/85.43/54.53 50.00/76.32/32.62
fedavg-pl   80.52/91.32/70.94 76.12/87.88/58.98 63.40/83.12/44.18 61.46/79.48/40.60
rscfed      80.26/90.83/70.79 79.09/89.24/67.27 67.55/85.40/61.43 67.16/71.16/36.89
fedfixmatch 80.75/91.52/71.03 80.75/90.19/69.10 66.26/77.75/46.35 50.00/74.90/31.05
fedirm      79.77/90.93/70.63 72.78/87.12/63.17 66.10/83.92/49.68 69.39/77.19/36.73
cbafed      76.13/91.43/70.58 71.97/87.50/63.27 55.66/74.85/43.94 52.28/72.15/34.99
fedlsr      75.81/91.28/70.52 65.48/89.04/66.76 56.67/84.62/52.70 50.00/74.14/29.73
fednoro     82.47/90.92/70.88 81.90/91.12/69.53 80.98/90.99/65.73 74.64/85.09/59.28
fedmlp      83.50/92.84/73.80 82.26/91.75/70.52 81.10/90.87/65.53 80.07/88.47/59.31
"""

# With 1, 3, 5 and 7 of 8 classes missing; for the other rows only averages are recorded here.
FEDMLP_CHESTXRAY14 = """
fedavg      63.27/76.46/26.89 57.21/75.45/23.31 51.98/70.21/18.65 50.00/66.64/12.16
fedavg-pl   63.88/76.02/27.37 60.14/73.28/21.38 56.87/69.33/19.35 53.30/64.80/11.49
fednoro     69.65/78.99/27.96 69.27/78.73/26.26 67.68/74.75/25.97 66.54/74.23/20.31
fedmlp      68.55/78.44/28.87 68.37/78.51/28.01 68.62/76.02/26.63 70.08/75.76/22.48
"""
FEDMLP_CHESTXRAY14_AVERAGES = """
rscfed      59.43/72.55/22.92
fedfixmatch 58.38/72.14/21.11
fedirm      56.04/70.23/21.27
cbafed      58.68/68.03/19.54
fedlsr      55.17/68.09/19.99
"""

# FedLSM, Table 1: mean AUC over 14 findings
FEDLSM_CHESTXRAY14 = """
full-labels 80.7
fedavg      71.0
fedavg-star 76.0
fedprox-star 76.6
moon-star   77.2
fedrs       69.7
fpsl        76.0
fixmatch-star 77.6
fssl-star   74.0
fedlsm      79.1
"""

# Table 2: AUC/accuracy/F1/precision/recall over 7 classes
FEDLSM_ISIC = """
full-labels 97.7/88.9/80.9/74.3/80.0
fedavg      92.7/81.0/57.6/72.1/62.2
fedavg-star 94.9/81.7/62.0/75.3/59.7
fedprox-star 95.2/82.0/63.0/76.8/61.2
moon-star   94.8/82.6/65.2/75.5/62.0
fedpu       92.7/79.6/55.0/69.9/57.0
fedrs       92.6/80.0/57.7/71.6/59.7
fpsl        95.2/82.5/63.8/72.8/61.3
fixmatch-star 94.0/78.9/56.4/68.1/54.1
fssl-star   93.9/80.7/60.8/74.0/58.0
fedlsm      96.0/84.6/71.3/76.3/69.9
"""

# FedNCA-ML, Table 1: macro AUC/macro F1/micro AUC/micro F1, columns beta 0.5 and 0.1.
# FedCurv's numbers are not recorded here.
FEDNCA_CIFAR10 = """
centralised 92.20/61.30/90.04/62.02 92.20/61.30/90.04/62.02
fedavg      82.29/39.47/81.48/40.26 78.92/31.17/77.62/35.07
fedprox     82.45/39.22/81.77/39.66 78.82/30.74/77.40/35.02
scaffold    82.51/39.98/82.08/40.26 79.00/31.38/77.72/35.54
spherefed   83.63/42.58/83.50/43.18 80.62/36.83/78.37/38.18
fedlgt      83.52/43.60/83.36/44.03 80.54/36.30/80.65/39.24
fednca-ml   87.55/48.17/87.00/48.61 83.80/38.09/78.90/41.60
"""
FEDNCA_DERMAMNIST = """
centralised 91.83/64.38/94.48/74.12 91.83/64.38/94.48/74.12
fedavg      89.72/54.88/92.51/68.29 83.88/42.79/87.23/62.81
fedprox     89.69/55.78/92.06/68.01 84.45/43.54/88.28/63.25
scaffold    89.72/55.85/92.45/68.09 84.59/43.20/88.91/63.82
spherefed   85.09/43.41/89.65/65.24 81.78/40.90/86.59/54.94
fedlgt      87.63/55.82/91.19/67.93 84.91/45.61/89.42/61.15
fednca-ml   90.12/56.31/92.85/68.20 86.30/50.54/89.74/63.76
"""

# Ablation: macro AUC/macro F1, beta 0.5 on CIFAR-10, beta 0.1 on DermaMNIST
FEDNCA_ABLATION_CIFAR10 = """
fc       82.46/40.65
etf      83.44/15.29
ladm     85.84/44.64
neg      87.72/48.22
pos      86.78/44.46
all      87.72/49.22
"""
FEDNCA_ABLATION_DERMAMNIST = """
fc       83.95/40.69
etf      83.61/33.35
ladm     84.38/47.95
neg      84.73/45.06
pos      85.20/49.84
all      87.69/51.38
"""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """Published numbers on one data set, in percent.

    On data other than the paper's, our columns correspond to the paper's by position.
    """

    label: str  # the paper's data set
    columns: tuple[str, ...]
    values: Mapping[str, Mapping[str, Mapping[str, float]]]
    same_data: bool  # we use the paper's data set, so the numbers can be compared directly

    def value(self, row: str, column: str, metric: str) -> float | None:
        """Return a number, or None if there is none; compute an average that is not printed."""
        cells = self.values.get(row, {})
        if column != AVERAGE or AVERAGE in cells:
            return cells.get(column, {}).get(metric)
        if cells.keys() != set(self.columns):
            return None
        return statistics.fmean(cell[metric] for cell in cells.values())


def read_reference(
    label: str,
    text: str,
    columns: Sequence[str],
    metrics: Sequence[str],
    *,
    same_data: bool,
    averages: str = "",
) -> Reference:
    """Parse a table: a line is a row's name, then each column's numbers joined by ``/``.

    ``averages`` has a single column, for rows whose other numbers are not recorded.
    """
    values = _read(text, columns, metrics) | _read(averages, [AVERAGE], metrics)
    return Reference(label=label, columns=tuple(columns), values=values, same_data=same_data)


def _read(text: str, columns: Sequence[str], metrics: Sequence[str]) -> Numbers:
    values: Numbers = {}
    for line in text.strip().splitlines():
        row, *cells = line.split()
        values[row] = {
            column: dict(zip(metrics, map(float, cell.split("/")), strict=True))
            for column, cell in zip(columns, cells, strict=True)
        }
    return values
