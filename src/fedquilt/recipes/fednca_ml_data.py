"""The data that FedNCA-ML's tables can be run on.

A client sees at most a share gamma of the classes, in proportions drawn with concentration beta.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedquilt.published_numbers import read_reference
from fedquilt.published_table import FOLDER, Column, DataChoice, Metric, Settings
from fedquilt.recipes import data_at_hand as at_hand
from fedquilt.recipes import numbers

ROUNDS = 100  # of the paper
METRICS = (
    Metric(name="macro_auc", label="macro AUC"),
    Metric(name="macro_f1", label="macro F1"),
    Metric(name="micro_auc", label="micro AUC"),
    Metric(name="overall_f1", label="micro F1"),
)
TRAINING = {
    "epochs": 1,  # FedLGT too, whose own paper has 5
    "optimizer": "adam",
    "lr": 1e-4,
    "betas": [0.9, 0.98],
    "weight_decay": 0.01,
    "decay": "decoupled",
    "batch_size": 32,
}
PLAIN = {"views": {"weak": "plain"}}  # the paper augments nothing by default
PLAIN_RESNET = {"model": {"backbone": "resnet18"}}  # with its usual first convolution
CIFAR10 = at_hand.cifar10() | PLAIN_RESNET
CIFAR10_128 = at_hand.cifar10(size=128) | PLAIN_RESNET
DERMAMNIST = {
    "data": {"name": "dermamnist-composites", "folder": FOLDER},
    "model": {"backbone": "resnet18", "weights": "timm", "small_stem": True},
}
DIGITS = at_hand.digits(classes=10, canvas=24, train=2000)


def _choice(
    name: str,
    about: str,
    settings: Mapping[str, Any],
    published: tuple[str, str],  # the paper's data set and its numbers
    betas: tuple[float, ...],
    metrics: tuple[Metric, ...],
    *,
    presence: float = 0.5,  # gamma
    training: Settings | None = None,
    rounds: int = ROUNDS,
    same_data: bool = True,
) -> DataChoice:
    columns = tuple(_column(beta, presence) for beta in betas)
    places, names = [column.name for column in columns], [metric.name for metric in metrics]
    return DataChoice(
        name=name,
        about=about,
        settings={
            **settings,
            **PLAIN,
            **at_hand.evaluated(rounds, strict=True),
            "annotation": {"name": "full"},
            "method": {"training": {**TRAINING, **(training or {})}},
        },
        columns=columns,
        references=(read_reference(*published, places, names, same_data=same_data),),
        rounds=rounds,
    )


def _column(beta: float, presence: float) -> Column:
    partition = {
        "name": "dirichlet-presence",
        "clients": 10,
        "concentration": beta,
        "presence_share": presence,
    }
    return Column(name=f"beta-{beta}", label=f"beta {beta}", settings={"partition": partition})


def _choices(
    cifar10: str,
    dermamnist: str,
    metrics: tuple[Metric, ...],
    cifar10_betas: tuple[float, ...],
    dermamnist_betas: tuple[float, ...],
) -> tuple[DataChoice, ...]:
    on_cifar10 = (("CIFAR-10", cifar10), cifar10_betas, metrics)
    on_dermamnist = (("DermaMNIST", dermamnist), dermamnist_betas, metrics)
    larger = "the same enlarged to 128 px"
    lesions = "the folder of MedMNIST's dermamnist.npz; one or two skin lesions on 56 px"
    # A client has some 180 mosaics and not 4,000 canvases: with one epoch a round of six steps it
    # would learn next to nothing.
    training = {"lr": 3e-3, "epochs": 5}
    on_digits: dict[str, Any] = {"training": training, "rounds": 30, "same_data": False}
    return (
        _choice("cifar10", at_hand.CIFAR10_ABOUT, CIFAR10, *on_cifar10),
        _choice("cifar10-128", larger, CIFAR10_128, *on_cifar10),
        _choice("dermamnist", lesions, DERMAMNIST, *on_dermamnist, presence=0.71),
        _choice("digits", at_hand.DIGITS_ABOUT, DIGITS, *on_cifar10, **on_digits),
    )


TABLE1_CHOICES = _choices(
    numbers.FEDNCA_CIFAR10, numbers.FEDNCA_DERMAMNIST, METRICS, (0.5, 0.1), (0.5, 0.1)
)
ABLATION_CHOICES = _choices(
    numbers.FEDNCA_ABLATION_CIFAR10,
    numbers.FEDNCA_ABLATION_DERMAMNIST,
    METRICS[:2],
    (0.5,),
    (0.1,),
)
