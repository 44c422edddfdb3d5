"""The data that FedLSM's tables can be run on: the paper's two sets, and what is at hand."""

from __future__ import annotations

from functools import partial

from fedquilt.published_numbers import read_reference
from fedquilt.published_table import FOLDER, Column, DataChoice, Metric, Settings
from fedquilt.recipes import data_at_hand as at_hand
from fedquilt.recipes import numbers

ROUNDS = 50  # of the paper
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
    class_order: str | None = None,  # of the paper's assignment of classes, on the paper's data
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
