"""FedNCA-ML (Peng et al., 2025), main table and ablation: labels complete, clients skewed."""

from __future__ import annotations

from functools import partial

from fedquilt.criterion import Above
from fedquilt.published_table import PublishedTable, Row, choose, method_row
from fedquilt.recipes.fednca_ml_data import ABLATION_CHOICES, METRICS, TABLE1_CHOICES

REMARKS = (
    "Numbers are of the last round; the paper's are of the round with the best F1, on validation "
    "data by its text, on the test data by its code.",
    "The paper's partition generator is not public; ours is described in dirichlet_presence.py.",
    "Canvases are 64 px, or 128 px with --data cifar10-128; the paper resizes them to 224 px.",
    "Baselines have a linear head, the authors' a hidden layer of twice the features' width.",
    "FedLGT knows class names by their spelling unless method.text_encoder names an encoder.",
)

_row = partial(method_row, weighting="uniform", positive_weight="none")


def table1(data: str | None = None, rounds: int | None = None) -> PublishedTable:
    choice = choose("fednca-ml/table1", TABLE1_CHOICES, data)
    fednca = partial(_row, method="fednca-ml", rejection=_rejection(choice.name))
    return PublishedTable(
        name="fednca-ml/table1",
        title="FedNCA-ML, 2025, main table: complete labels, a client sees part of the classes",
        choices={each.name: each for each in TABLE1_CHOICES},
        choice=choice,
        rounds=rounds or choice.rounds,
        rows=(
            _row("centralised", "centralised", "centralised", kind="bound"),
            _row("fedavg", "FedAvg", "fedavg"),
            _row("fedcurv", "FedCurv", "fedcurv", strength=0.1),
            _row("fedprox", "FedProx", "fedprox", mu=0.01),
            _row("scaffold", "SCAFFOLD", "scaffold"),
            _row("spherefed", "SphereFed", "spherefed"),
            _row("fedlgt", "FedLGT", "fedlgt"),
            fednca("fednca-ml", "FedNCA-ML"),
            fednca(
                "fednca-ml-released", "FedNCA-ML, as released", kind="variant", variant="released"
            ),
        ),
        metrics=METRICS,
        criterion=Above(row="fednca-ml", metric="macro_auc", others=("fedavg",)),
        remarks=REMARKS,
    )


def ablation(data: str | None = None, rounds: int | None = None) -> PublishedTable:
    choice = choose("fednca-ml/ablation", ABLATION_CHOICES, data)
    rejection = _rejection(choice.name)

    def component(
        name: str, label: str, neg: float = 0.0, pos: float = 0.0, head: str = "ladm"
    ) -> Row:
        return _row(name, label, "fednca-ml", head=head, rejection=neg, compaction=pos)

    return PublishedTable(
        name="fednca-ml/ablation",
        title="FedNCA-ML, 2025, ablation: what each component adds",
        choices={each.name: each for each in ABLATION_CHOICES},
        choice=choice,
        rounds=rounds or choice.rounds,
        rows=(
            component("fc", "FC", head="linear"),
            component("etf", "ETF only", head="etf"),
            component("ladm", "+ LADM"),
            component("neg", "+ LADM + Neg", neg=rejection),
            component("pos", "+ LADM + Pos", pos=1.0),
            component("all", "all", neg=rejection, pos=1.0),
        ),
        metrics=METRICS[:2],
        criterion=Above(row="all", metric="macro_auc", others=("fc", "etf")),
        remarks=REMARKS[:3],
    )


def _rejection(data: str) -> float:
    """lambda_1 of the paper: 1 for CIFAR-10, 0.01 for what starts from ImageNet weights."""
    return 0.01 if data == "dermamnist" else 1.0
