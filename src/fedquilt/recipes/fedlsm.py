"""FedLSM (Deng et al., MICCAI 2023), Tables 1 and 2: every client identifies three classes.

A star marks FPSL's task-dependent aggregation: a head row is averaged over its annotators alone.
"""

from __future__ import annotations

from fedquilt.criterion import AmongBest
from fedquilt.published_table import DataChoice, Metric, PublishedTable, Row, choose, method_row
from fedquilt.recipes.fedlsm_data import (
    TABLE1_CHOICES,
    TABLE1_METRICS,
    TABLE2_CHOICES,
    TABLE2_METRICS,
)

REMARKS = (
    "Numbers are of the last round; the paper's are of the round that was best on validation data.",
    "A positive counts as often as there are negatives for it at its client; the paper weighs "
    "positives and negatives of a class alike, by counts of all clients.",
    "The paper does not give mu of FedProx and MOON, alpha of FedRS, nor FixMatch's thresholds.",
)
TABLE2_REMARK = (
    "Each class has a sigmoid of its own and is present from 0.5, accuracy is the share of images "
    "with all labels right; in the paper classes compete in a softmax and the largest wins. In "
    "the rows fedpu and fedlsm-softmax (--cells) it is present from a share of 0.5 in a softmax."
)
# A client's most and least uncertain images: the paper's on the paper's data, else the same shares
# of a client's images.
TABLE1_POOLS = {
    "chestxray14": (500, 2000),
    "cifar10": (264, 1056),
    "miml-scenes": (17, 68),
    "digits": (5, 21),
}
TABLE2_POOLS = {"ham10000": (50, 200), "cifar10": (221, 884), "digits": (4, 14)}


def table1(data: str | None = None, rounds: int | None = None) -> PublishedTable:
    name = "fedlsm/table1"
    choice = choose(name, TABLE1_CHOICES, data)
    title = "FedLSM, MICCAI 2023, Table 1: chest radiographs, sites annotate different findings"
    rows = _rows(*TABLE1_POOLS[choice.name])
    return _table(name, title, TABLE1_CHOICES, choice, rounds, rows, TABLE1_METRICS, REMARKS)


def table2(data: str | None = None, rounds: int | None = None) -> PublishedTable:
    name = "fedlsm/table2"
    choice = choose(name, TABLE2_CHOICES, data)
    title = "FedLSM, MICCAI 2023, Table 2: skin lesions, one class an image"
    uncertain, certain = TABLE2_POOLS[choice.name]
    softmax = {"uncertain_images": uncertain, "certain_images": certain, "variant": "single-label"}
    rows = (
        *_rows(uncertain, certain),
        # All positives of an identified class are labelled, so next to none are among the blanks.
        method_row("fedpu", "FedPU", "fedpu", variant="published", prior=[0.01]),
        method_row("fedlsm-softmax", "FedLSM, softmax", "fedlsm", kind="variant", **softmax),
    )
    remarks = (*REMARKS, TABLE2_REMARK)
    return _table(name, title, TABLE2_CHOICES, choice, rounds, rows, TABLE2_METRICS, remarks)


def _table(
    name: str,
    title: str,
    choices: tuple[DataChoice, ...],
    choice: DataChoice,
    rounds: int | None,
    rows: tuple[Row, ...],
    metrics: tuple[Metric, ...],
    remarks: tuple[str, ...],
) -> PublishedTable:
    return PublishedTable(
        name=name,
        title=title,
        choices={each.name: each for each in choices},
        choice=choice,
        rounds=rounds or choice.rounds,
        rows=rows,
        metrics=metrics,
        criterion=AmongBest(row="fedlsm", metric="macro_auc", places=2),
        remarks=remarks,
    )


def _rows(uncertain: int, certain: int) -> tuple[Row, ...]:
    odds = {"positive_weight": "odds"}
    star = {"head_rows": "annotated", **odds}
    sure = {"gate": "entry", "threshold": 0.85}
    pools = {"uncertain_images": uncertain, "certain_images": certain}
    return (
        method_row("full-labels", "FedAvg, 100 % labels", "full-labels", kind="bound", **odds),
        method_row("fedavg", "FedAvg", "fedavg", **odds),
        method_row("fedavg-star", "FedAvg*", "fedavg-pl", **star),
        method_row("fedprox-star", "FedProx*", "fedprox", mu=0.01, **star),
        method_row("moon-star", "MOON*", "moon", mu=1.0, **star),
        method_row("fedrs", "FedRS", "fedrs", alpha=0.5, **odds),
        method_row("fpsl", "FPSL", "fpsl", **star),
        method_row("fixmatch-star", "FedAvg-FixMatch*", "fedfixmatch", **sure, **star),
        method_row("fssl-star", "FSSL*", "fssl", **star),
        method_row("fedlsm", "FedLSM", "fedlsm", **pools, **odds),
        method_row(
            "fedlsm-annotators",
            "FedLSM, annotators' head rows",
            "fedlsm",
            kind="variant",
            draw_counts=False,
            **pools,
            **odds,
        ),
    )
