"""The data of FedNCA-ML's tables: the paper's at its image size, and freely available ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from fedquilt.recipes.papers import data_at_hand as at_hand
from fedquilt.recipes.papers.table import FOLDER, Settings

ROUNDS = 100  # in the paper
TRAINING = {
    "epochs": 1,  # also for FedLGT, whose paper uses 5
    "optimizer": "adam",
    "lr": 1e-4,
    "betas": [0.9, 0.98],
    "weight_decay": 0.01,
    "decay": "decoupled",
    "batch_size": 32,
}
PLAIN = {"views": {"weak": "plain"}}  # the paper does not augment by default
PLAIN_RESNET = {"model": {"backbone": "resnet18"}}  # with the standard 7x7 stem
PRETRAINED = {
    "model": {"backbone": "resnet18.tv_in1k", "weights": "timm", **at_hand.IMAGENET},
}
# The paper's partitions are files that all seeds share.
ONE_ALLOCATION = {"allocation_seed": 0}
FITTED_SETS = {"choose_by": "shares-first"}  # a small beta then concentrates classes


@dataclass(frozen=True)
class Setting:
    """Data of one of the paper's settings, ours or the paper's."""

    name: str
    about: str
    settings: Mapping[str, Any]
    printed: str  # the paper's data set whose numbers are shown
    tables: tuple[str, str, str]  # of methods, components and queries; "" if there is none
    betas: tuple[float, ...]
    presence: float = 0.5  # gamma
    rejection: float = 0.01  # lambda_1 of the paper: 1 for CIFAR-10, 0.01 for pretrained models
    training: Settings | None = None
    rounds: int = ROUNDS
    is_papers: bool = True  # the paper's data and image size, so with its heads and allocation
    same_data: bool = True
    ablation_beta: float = 0.5
    validation: float = 0.1  # share of each client's images, on the paper's images


_LARGER = "the same enlarged to {} px"
_on_cifar10 = partial(
    Setting,
    printed="cifar10 composites",
    tables=("1", "7", "8"),
    betas=(0.5, 0.1),
    rejection=1.0,
)
CIFAR10 = (
    _on_cifar10(
        "cifar10-224",
        f"{at_hand.CIFAR10_ABOUT}, enlarged to 224 px as in the paper",
        at_hand.cifar10(size=224) | PLAIN_RESNET,
    ),
    _on_cifar10(
        "cifar10", at_hand.CIFAR10_ABOUT, at_hand.cifar10() | PLAIN_RESNET, is_papers=False
    ),
    _on_cifar10(
        "cifar10-128",
        _LARGER.format(128),
        at_hand.cifar10(size=128) | PLAIN_RESNET,
        is_papers=False,
    ),
    _on_cifar10(
        "digits",
        at_hand.DIGITS_ABOUT,
        at_hand.digits(classes=10, canvas=24, train=2000),
        # A client has about 180 mosaics instead of 4,000 canvases: one epoch is six steps, too few
        # to learn from in a round.
        training={"lr": 3e-3, "epochs": 5},
        rounds=30,
        is_papers=False,
        same_data=False,
    ),
)
DERMAMNIST = (
    Setting(
        "dermamnist",
        "the folder of MedMNIST's dermamnist.npz; one or two skin lesions, enlarged to 224 px",
        {"data": {"name": "dermamnist-composites", "folder": FOLDER, "size": 224}, **PRETRAINED},
        "dermamnist composites",
        ("2", "5", "6"),
        (0.5, 0.1),
        presence=0.71,
        ablation_beta=0.1,
        validation=0.125,  # as large as the published validation split, which joins the training
    ),
)
PASCAL_VOC = (
    Setting(
        "pascal-voc",
        "the folder of PASCAL VOC 2012; tested on its validation set",
        {
            "data": {
                "name": "pascal-voc",
                "folder": FOLDER,
                "year": 2012,
                "size": 224,
            },
            **PRETRAINED,
        },
        "pascal voc",
        ("3", "", ""),
        (0.05, 0.01),
    ),
)
CHEST = (
    Setting(
        "chestxray14",
        "the folder of NIH ChestX-ray14",
        {"data": {"name": "chestxray14", "folder": FOLDER, "size": 224}, **PRETRAINED},
        "chestxray14",
        ("4", "", ""),
        (0.5, 0.1),
        validation=0.125,
    ),
)
