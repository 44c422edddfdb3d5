"""The data of FedMLP's tables: the paper's, and freely available ones."""

from __future__ import annotations

from dataclasses import dataclass

from fedquilt.recipes.papers import data_at_hand as at_hand
from fedquilt.recipes.papers.table import FOLDER, Settings

ROUNDS = 500  # in the paper
VIEWS = {"weak": "weak", "strong": "randaugment"}
# 185,051 slices in total: the paper trains on 25,000 and tests on the rest.
ICH = {"name": "rsna-ich", "stage": 1, "healthy": 87948, "split": "image", "test_share": 0.8649}
CHEST = {"name": "chestxray14", "classes": "top8", "view": "PA", "split": "image"}
PAPERS_DATA = ("ich", "chestxray14")


@dataclass(frozen=True)
class Setting:
    """Data that the tables run on: its settings, and its numbers of missing classes."""

    name: str
    about: str
    settings: Settings
    training: Settings
    missing: tuple[int, ...]  # of the columns of Tables 1 and 2; Table 3 has the last one
    rounds: int = ROUNDS


# The paper's data sets, as printed: our name of the data, the label, its table of comparisons
PAPERS = (("ich", "ICH", "rsna-ich", "1"), ("chestxray14", "ChestX-ray14", "chestxray14", "2"))
PAPERS_MISSING = {"ich": (1, 2, 3, 4), "chestxray14": (1, 3, 5, 7)}


def _papers(name: str, about: str, data: Settings) -> Setting:
    settings = {
        "data": {**data, "folder": FOLDER, "size": 224},
        # torchvision's weights, as in the authors' code
        "model": {"backbone": "resnet18.tv_in1k", "weights": "timm", **at_hand.IMAGENET},
        "views": VIEWS,
    }
    training = {"optimizer": "adam", "lr": 3e-5, "weight_decay": 5e-4, "decay": "coupled"}
    return Setting(name, about, settings, training, PAPERS_MISSING[name])


ON_ICH = _papers("ich", "the folder of RSNA's challenge on intracranial haemorrhage", ICH)
ON_CHEST = _papers("chestxray14", "the folder of NIH ChestX-ray14", CHEST)
AT_HAND = (
    Setting(
        "cifar10",
        at_hand.CIFAR10_ABOUT,
        at_hand.cifar10() | {"views": VIEWS},
        {"lr": 3e-4},
        (1, 4, 7, 9),
        rounds=50,
    ),
    Setting(
        "miml-scenes",
        at_hand.SCENES_ABOUT,
        at_hand.scenes() | {"views": VIEWS},
        {"lr": 1e-4},
        (1, 2, 3, 4),
        rounds=40,
    ),
    Setting(
        "digits",
        at_hand.DIGITS_ABOUT,
        at_hand.digits(),
        {"lr": 3e-3, "epochs": 2},
        (1, 2, 3, 4),
        rounds=30,
    ),
)
