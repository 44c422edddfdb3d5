"""The data of FedLSM's tables: the paper's, and freely available ones."""

from __future__ import annotations

from dataclasses import dataclass

from fedquilt.recipes.papers import data_at_hand as at_hand
from fedquilt.recipes.papers.table import FOLDER, Settings

ROUNDS = 50  # in the paper
VALIDATION = 1 / 8  # of what is not tested on: 7 to 1, as in the paper
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
    "data": {"name": "chestxray14", "folder": FOLDER, "size": 320},
    "model": {
        "backbone": "densenet121.tv_in1k",
        "weights": "timm",
        "mean": [0.506],
        "std": [0.252],
    },
    "views": VIEWS,
}
SKIN = {
    "data": {
        "name": "ham10000",
        "folder": FOLDER,
        "split": "image",
        "validation_share": 0.0,  # clients set their validation images aside
        "size": 224,
    },
    "model": {
        "backbone": "densenet121.tv_in1k",
        "weights": "timm",
        "mean": [0.763, 0.546, 0.570],
        "std": [0.141, 0.153, 0.170],
    },
    "views": VIEWS,
}
ON_CIFAR10 = {"steps": 80, "lr": 3e-4}
ON_DIGITS = {"steps": 8, "batch_size": 32, "lr": 3e-3}


@dataclass(frozen=True)
class Setting:
    """Data that the tables run on."""

    name: str
    about: str
    settings: Settings
    training: Settings
    clients: int
    identified: int = 3
    class_order: str | None = None  # on the paper's data: the order its class assignment uses
    rounds: int = ROUNDS

    @property
    def is_papers(self) -> bool:
        return self.class_order is not None


ON_CHEST = Setting(
    "chestxray14",
    "the folder of NIH ChestX-ray14",
    CHEST,
    {"steps": 200},
    clients=8,
    class_order="alphabetical",
)
ON_SKIN = Setting(
    "ham10000",
    "the folder of HAM10000 (ISIC 2018, task 3)",
    SKIN,
    {"steps": 30},
    clients=5,
    class_order="data",
)
TABLE1_AT_HAND = (
    Setting(
        "cifar10",
        at_hand.CIFAR10_ABOUT,
        at_hand.cifar10() | {"views": VIEWS},
        ON_CIFAR10,
        clients=8,
        rounds=30,
    ),
    Setting(
        "miml-scenes",
        at_hand.SCENES_ABOUT,
        at_hand.scenes() | {"views": VIEWS},
        {"steps": 10, "batch_size": 32},
        clients=5,
        identified=2,
        rounds=30,
    ),
    Setting(
        "digits",
        at_hand.DIGITS_ABOUT,
        at_hand.digits(),
        ON_DIGITS,
        clients=5,
        identified=2,
        rounds=30,
    ),
)
TABLE2_AT_HAND = (
    Setting(
        "cifar10",
        "the folder of CIFAR-10; one photograph on a canvas of 64 px",
        at_hand.cifar10(pairs=0, test_pairs=0) | {"views": VIEWS},
        ON_CIFAR10,
        clients=5,
        rounds=30,
    ),
    Setting(
        "digits",
        at_hand.DIGITS_ABOUT,
        at_hand.digits(classes=7, digits_per_image=[1, 1]),
        ON_DIGITS,
        clients=5,
        rounds=30,
    ),
)
