"""FedLSM (Deng et al., MICCAI 2023), Tables 1 and 2, and the data they run on."""

from __future__ import annotations

from functools import partial

from fedquilt.recipes.papers import data_at_hand as at_hand
from fedquilt.recipes.papers import published_numbers as numbers
from fedquilt.recipes.papers.criterion import AmongBest
from fedquilt.recipes.papers.published_numbers import read_reference
from fedquilt.recipes.papers.table import (
    FOLDER,
    Column,
    DataChoice,
    Metric,
    PublishedTable,
    Row,
    Settings,
    choose,
    method_row,
)

ROUNDS = 50  # in the paper
TABLE1_METRICS = (Metric(name="macro_auc", label="AUC"),)
TABLE2_METRICS = (
    *TABLE1_METRICS,
    Metric(name="subset_accuracy", label="accuracy"),
    Metric(name="macro_f1", label="F1"),
    Metric(name="class_precision", label="precision"),
    Metric(name="class_recall", label="recall"),
)
VIEWS = {"weak": "flip", "strong": "strong"}
TRAINING = {
    "optimizer": "adam",
    "lr": 1e-4,
    "betas": [0.9, 0.99],
    "weight_decay": 5e-4,
    "batch_size": 64,
    "keep_optimizer": True,
}
CHEST = {
    "data": {"name": "chestxray14", "folder": FOLDER, "validation_share": 0.125, "size": 320},
    "model": {"backbone": "densenet121", "weights": "timm", "mean": [0.506], "std": [0.252]},
    "views": VIEWS,
}
SKIN = {
    "data": {"name": "ham10000", "folder": FOLDER, "split": "image", "size": 224},
    "model": {
        "backbone": "densenet121",
        "weights": "timm",
        "mean": [0.763, 0.546, 0.570],
        "std": [0.141, 0.153, 0.170],
    },
    "views": VIEWS,
}
ON_CIFAR10 = {"steps": 80, "lr": 3e-4}
ON_DIGITS = {"steps": 8, "batch_size": 32, "lr": 3e-3}
# How many of its most and least uncertain images a client uses: the paper's counts on its data,
# the same share of a client's images on other data.
TABLE1_POOLS = {
    "chestxray14": (500, 2000),
    "cifar10": (264, 1056),
    "miml-scenes": (17, 68),
    "digits": (5, 21),
}
TABLE2_POOLS = {"ham10000": (50, 200), "cifar10": (221, 884), "digits": (4, 14)}
REMARKS = (
    "We report the last round; the paper reports the round that was best on validation data.",
    "We weight a class's positives by the ratio of negatives to positives at the client; the paper "
    "balances positives and negatives with the counts of all clients.",
    "The paper gives neither mu of FedProx and MOON, alpha of FedRS, nor FixMatch's thresholds.",
)
TABLE2_REMARK = (
    "Each class has its own sigmoid and is predicted at 0.5 or more; accuracy is the share of "
    "images with all labels right. The paper uses a softmax and predicts the largest class. The "
    "rows fedpu and fedlsm-softmax (--cells) predict a class at a softmax probability of 0.5."
)


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
        # All positives of an identified class are annotated, so almost none are unannotated.
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


def _choice(
    name: str,
    about: str,
    settings: Settings,
    training: Settings,
    *,
    published: str,
    label: str,
    metrics: tuple[Metric, ...],
    clients: int,
    identified: int = 3,
    class_order: str | None = None,  # on the paper's data: the order its class assignment uses
    rounds: int = ROUNDS,
) -> DataChoice:
    annotation = {"name": "identified", "identified": identified}
    if class_order is not None:
        annotation |= {"published": True, "class_order": class_order}
    column = Column(name=f"identified-{identified}", label=f"{identified} identified")
    names = [metric.name for metric in metrics]
    same_data = class_order is not None
    return DataChoice(
        name=name,
        about=about,
        settings={
            **settings,
            **at_hand.evaluated(rounds),
            "partition": {"name": "iid", "clients": clients},
            "annotation": annotation,
            "method": {"training": {**TRAINING, **training}},
        },
        columns=(column,),
        references=(read_reference(label, published, [column.name], names, same_data=same_data),),
        rounds=rounds,
    )


_table1 = partial(
    _choice,
    published=numbers.FEDLSM_CHESTXRAY14,
    label="ChestX-ray14",
    metrics=TABLE1_METRICS,
)
_table2 = partial(
    _choice, published=numbers.FEDLSM_ISIC, label="ISIC 2018", metrics=TABLE2_METRICS, clients=5
)
TABLE1_CHOICES = (
    _table1(
        "chestxray14",
        "the folder of NIH ChestX-ray14",
        CHEST,
        {"steps": 200},
        clients=8,
        class_order="alphabetical",
    ),
    _table1(
        "cifar10",
        at_hand.CIFAR10_ABOUT,
        at_hand.cifar10() | {"views": VIEWS},
        ON_CIFAR10,
        clients=8,
        rounds=30,
    ),
    _table1(
        "miml-scenes",
        at_hand.SCENES_ABOUT,
        at_hand.scenes() | {"views": VIEWS},
        {"steps": 10, "batch_size": 32},
        clients=5,
        identified=2,
        rounds=30,
    ),
    _table1(
        "digits",
        at_hand.DIGITS_ABOUT,
        at_hand.digits(),
        ON_DIGITS,
        clients=5,
        identified=2,
        rounds=30,
    ),
)
TABLE2_CHOICES = (
    _table2(
        "ham10000",
        "the folder of HAM10000 (ISIC 2018, task 3)",
        SKIN,
        {"steps": 30},
        class_order="data",
    ),
    _table2(
        "cifar10",
        "the folder of CIFAR-10; one photograph on a canvas of 64 px",
        at_hand.cifar10(pairs=0, test_pairs=0) | {"views": VIEWS},
        ON_CIFAR10,
        rounds=30,
    ),
    _table2(
        "digits",
        at_hand.DIGITS_ABOUT,
        at_hand.digits(classes=7, digits_per_image=[1, 1]),
        ON_DIGITS,
        rounds=30,
    ),
)
