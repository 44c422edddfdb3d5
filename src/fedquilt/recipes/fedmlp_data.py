"""The data that FedMLP's table can be run on: the paper's two sets, and what is at hand.

There are as many clients as classes, each with the same number of images.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedquilt.published_numbers import Reference, read_reference
from fedquilt.published_table import FOLDER, Column, DataChoice, Metric, Settings
from fedquilt.recipes import data_at_hand as at_hand
from fedquilt.recipes import numbers

ROUNDS = 500  # of the paper
METRICS = (
    Metric(name="bacc", label="BACC"),
    Metric(name="macro_auc", label="AUC"),
    Metric(name="map", label="mAP"),
)
VIEWS = {"weak": "weak", "strong": "randaugment"}
# 185,051 slices in all: the paper trains on 25,000 and tests on the rest.
ICH = {"name": "rsna-ich", "stage": 1, "healthy": 87948, "split": "image", "test_share": 0.8649}
CHEST = {"name": "chestxray14", "classes": "top8", "view": "PA", "split": "image"}


def _columns(classes: int, *missing: int) -> tuple[Column, ...]:
    """Where all but one are missing, client i annotates class i."""
    return tuple(_column(classes, each) for each in missing)


def _column(classes: int, missing: int) -> Column:
    one_to_one = missing == classes - 1
    return Column(
        name=f"missing-{missing}",
        label=f"{missing} missing",
        settings={
            "partition": {"name": "iid", "clients": classes},
            "annotation": {"name": "missing", "missing": missing, "one_to_one": one_to_one},
        },
    )


def _references(columns: tuple[Column, ...], same_data: str | None) -> tuple[Reference, ...]:
    """The paper's numbers on the same data or, on other data, on both of its sets."""
    places, metrics = [each.name for each in columns], [each.name for each in METRICS]
    texts = {
        "ICH": (numbers.FEDMLP_ICH, ""),
        "ChestX-ray14": (numbers.FEDMLP_CHESTXRAY14, numbers.FEDMLP_CHESTXRAY14_AVERAGES),
    }
    return tuple(
        read_reference(
            label, text, places, metrics, same_data=label == same_data, averages=averages
        )
        for label, (text, averages) in texts.items()
        if same_data in (None, label)
    )


def _choice(
    name: str,
    about: str,
    columns: tuple[Column, ...],
    settings: Mapping[str, Any],
    training: Settings,
    *,
    rounds: int = ROUNDS,
    same_data: str | None = None,
) -> DataChoice:
    return DataChoice(
        name=name,
        about=about,
        settings={
            **settings,
            **at_hand.evaluated(rounds, strict=True),
            "method": {"training": {"batch_size": 32, **training}},
        },
        columns=columns,
        references=_references(columns, same_data),
        rounds=rounds,
    )


def _published(
    name: str, about: str, columns: tuple[Column, ...], data: Settings, label: str
) -> DataChoice:
    settings = {
        "data": {**data, "folder": FOLDER, "size": 224},
        "model": {"backbone": "resnet18", "weights": "timm", **at_hand.IMAGENET},
        "views": VIEWS,
    }
    training = {"optimizer": "adam", "lr": 3e-5, "weight_decay": 5e-4, "decay": "coupled"}
    return _choice(name, about, columns, settings, training, same_data=label)


CHOICES = (
    _published(
        "ich",
        "the folder of RSNA's challenge on intracranial haemorrhage",
        _columns(5, 1, 2, 3, 4),
        ICH,
        "ICH",
    ),
    _published(
        "chestxray14",
        "the folder of NIH ChestX-ray14",
        _columns(8, 1, 3, 5, 7),
        CHEST,
        "ChestX-ray14",
    ),
    _choice(
        "cifar10",
        at_hand.CIFAR10_ABOUT,
        _columns(10, 1, 4, 7, 9),
        at_hand.cifar10() | {"views": VIEWS},
        {"lr": 3e-4},
        rounds=50,
    ),
    _choice(
        "miml-scenes",
        at_hand.SCENES_ABOUT,
        _columns(5, 1, 2, 3, 4),
        at_hand.scenes() | {"views": VIEWS},
        {"lr": 1e-4},
        rounds=40,
    ),
    _choice(
        "digits",
        at_hand.DIGITS_ABOUT,
        _columns(5, 1, 2, 3, 4),
        at_hand.digits(),
        {"lr": 3e-3, "epochs": 2},
        rounds=30,
    ),
)
