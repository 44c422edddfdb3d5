"""Figures of published papers, and their tables of counts: what is drawn, from which recipes.

A display borrows a published table's data and recipes, so its runs are the table's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fedquilt.recipes.papers import find_table
from fedquilt.recipes.papers.published_numbers import printed

Kind = Literal[
    "positives",  # counts per client and class, beside the paper's
    "holdings",  # how a class is shared out over clients
    "canvases",  # some training images with their labels
    "embedding",  # t-SNE of class-wise features
    "cosines",  # of the class means of these features
    "attention",  # where each class looks
    "annotators",  # a class's metric against its number of annotators
]
UNTRAINED: tuple[Kind, ...] = ("positives", "holdings", "canvases")


@dataclass(frozen=True, kw_only=True)
class Display:
    """A figure, or a table of counts."""

    name: str  # paper/fig or paper/table, with its number
    title: str
    kind: Kind
    table: str  # whose data and recipes are used
    cells: str = "/"  # the runs that are drawn, as in --cells; any row if nothing is trained
    metric: str = "bacc"  # of a class, for the kind "annotators"
    printed: tuple[str, str, str] | None = None  # paper, table and data of the paper's numbers
    remarks: tuple[str, ...] = ()

    def data(self) -> tuple[str, ...]:
        """Return the choices of data; the paper's counts are of its own data only."""
        choices = tuple(find_table(self.table).choices)
        return choices if self.printed is None else choices[:1]

    @property
    def trains(self) -> bool:
        return self.kind not in UNTRAINED

    def counts(self) -> dict[str, dict[str, float]]:
        """Return the paper's counts: its client -> its class -> positives."""
        found: dict[str, dict[str, float]] = {}
        if self.printed is not None:
            for (client, _, label), (value, _) in printed(*self.printed).items():
                found.setdefault(client, {})[label] = value
        return found


NOT_AT_HAND = (
    "The figures of the paper were not at hand: what is drawn follows their description, and which "
    "of its data sets Figures 3 to 7 show is our reading; --data chooses.",
)
FEDLSM_RULE = (
    "Classes are assigned by the paper's rule and seed, so that clients annotate the same classes; "
    "the images of a client are ours, so counts agree up to chance.",
)
BY_QUERY = (
    "A class's feature of FedNCA-ML comes from the class's own query, so features of different "
    "classes lie apart in an untrained network too. That is no sign of a good classifier.",
)
ON_CIFAR10, ON_SKIN = "fednca-ml/table1", "fednca-ml/table2"
COMPARED = "fedavg,spherefed,fednca-ml/beta-0.5"


def _fednca(number: int, title: str, kind: Kind, table: str, cells: str = "/") -> Display:
    return Display(
        name=f"fednca-ml/fig{number}",
        title=f"FedNCA-ML, 2025, Figure {number}: {title}",
        kind=kind,
        table=table,
        cells=cells,
        remarks=NOT_AT_HAND + (BY_QUERY if kind in ("embedding", "cosines") else ()),
    )


def _fedlsm(number: int, title: str, table: str, data: str) -> Display:
    return Display(
        name=f"fedlsm/table{number}",
        title=f"FedLSM, MICCAI 2023, Table {number}: {title}",
        kind="positives",
        table=table,
        printed=("fedlsm", str(number), data),
        remarks=FEDLSM_RULE,
    )


_FEATURES = "features of each class in a plane (t-SNE), by class and by number of labels"
_COSINES = "cosines between the class means of these features"
_SHARES = "how the clients share each class"
DISPLAYS: Mapping[str, Display] = {
    each.name: each
    for each in (
        Display(
            name="fedmlp/fig1",
            title="FedMLP, MICCAI 2024, supplement, Figure 1: FedAvg per class against the number "
            "of clients that annotate the class",
            kind="annotators",
            table="fedmlp/table1",
            cells="fedavg",
            remarks=(
                "The supplement was not at hand; the points are the classes of all columns of "
                "Table 1, and the metric is BACC.",
            ),
        ),
        _fedlsm(5, "annotated positives per client, chest", "fedlsm/table1", "chestxray14"),
        _fedlsm(6, "annotated positives per client, skin", "fedlsm/table2", "isic2018"),
        _fednca(3, _FEATURES, "embedding", ON_CIFAR10, COMPARED),
        _fednca(4, _COSINES, "cosines", ON_CIFAR10, COMPARED),
        _fednca(5, "where each class looks", "attention", ON_CIFAR10, "fednca-ml/beta-0.5"),
        _fednca(6, _FEATURES, "embedding", ON_SKIN, COMPARED),
        _fednca(7, _COSINES, "cosines", ON_SKIN, COMPARED),
        _fednca(8, "canvases with one or two photographs", "canvases", ON_CIFAR10),
        _fednca(9, f"{_SHARES}, CIFAR-10 composites", "holdings", ON_CIFAR10),
        _fednca(10, f"{_SHARES}, DermaMNIST composites", "holdings", ON_SKIN),
        _fednca(11, f"{_SHARES}, PASCAL VOC", "holdings", "fednca-ml/table3"),
        _fednca(12, f"{_SHARES}, ChestX-ray14", "holdings", "fednca-ml/table4"),
    )
}
