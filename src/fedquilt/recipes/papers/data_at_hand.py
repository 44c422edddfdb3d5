"""Data that most people can get at, and the networks and views that suit it."""

from __future__ import annotations

from typing import Any

from fedquilt.recipes.papers.table import FOLDER

CIFAR10_ABOUT = "the folder of CIFAR-10; one or two photographs on a canvas of 64 px"
SCENES_ABOUT = "a folder with images/ and labels.csv of five classes, such as the MIML scenes"
DIGITS_ABOUT = "mosaics of scikit-learn's digits: no files needed, minutes on a laptop"

IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}


def cifar10(**data: Any) -> dict[str, Any]:
    """Multi-label CIFAR-10, 40,000 canvases to train, with a ResNet-18 from scratch."""
    return {
        "data": {"name": "cifar10-composites", "folder": FOLDER, **data},
        "model": {"backbone": "resnet18", "small_stem": True},
    }


def scenes(**data: Any) -> dict[str, Any]:
    """A user's folder at 64 px; set model.weights to a file to start from pretrained weights."""
    files = {"folder": f"{FOLDER}/images", "labels": f"{FOLDER}/labels.csv"}
    return {
        "data": {"name": "folder", "size": 64, **files, **data},
        "model": {"backbone": "resnet18", "small_stem": True},
    }


def digits(**data: Any) -> dict[str, Any]:
    """A mirrored digit is another digit, so the strong view only moves and turns it a little."""
    moved = {"horizontal_flip": 0.0, "degrees": 10.0, "translate": 0.06}
    return {
        "data": {"name": "digits-mosaic", **data},
        "model": {"backbone": "small-cnn"},
        "views": {"weak": "plain", "strong": moved},
    }


def evaluated(rounds: int, *, strict: bool = False) -> dict[str, Any]:
    """Ten evaluations and saved states in a run; ``strict`` is the paper's "above 0.5"."""
    every = max(1, rounds // 10)
    return {"evaluation": {"every": every, "strict": strict}, "checkpoint_every": every}
