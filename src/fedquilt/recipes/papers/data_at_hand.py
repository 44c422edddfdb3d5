"""Freely available data for the papers' tables, with matching models and views."""

from __future__ import annotations

from typing import Any

from fedquilt.recipes.papers.table import FOLDER

CIFAR10_ABOUT = "the folder of CIFAR-10; one or two photographs on a canvas of 64 px"
SCENES_ABOUT = "a folder with images/ and labels.csv of five classes, such as the MIML scenes"
DIGITS_ABOUT = "mosaics of scikit-learn's digits: no files needed, minutes on a laptop"

IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}


def cifar10(**data: Any) -> dict[str, Any]:
    """Multi-label CIFAR-10 with 40,000 training canvases and a ResNet-18 trained from scratch."""
    return {
        "data": {"name": "cifar10-composites", "folder": FOLDER, **data},
        "model": {"backbone": "resnet18", "small_stem": True},
    }


def scenes(**data: Any) -> dict[str, Any]:
    """A folder of images at 64 px; set model.weights to a file for pretrained weights."""
    files = {"folder": f"{FOLDER}/images", "labels": f"{FOLDER}/labels.csv"}
    return {
        "data": {"name": "folder", "size": 64, **files, **data},
        "model": {"backbone": "resnet18", "small_stem": True},
    }


def digits(**data: Any) -> dict[str, Any]:
    """Mosaics of digits; the strong view shifts and rotates but does not mirror them."""
    moved = {"horizontal_flip": 0.0, "degrees": 10.0, "translate": 0.06}
    return {
        "data": {"name": "digits-mosaic", **data},
        "model": {"backbone": "small-cnn"},
        "views": {"weak": "plain", "strong": moved},
    }


def evaluated(rounds: int, *, strict: bool = False) -> dict[str, Any]:
    """Evaluate and save ten times per run; ``strict`` predicts a class only above 0.5."""
    every = max(1, rounds // 10)
    return {"evaluation": {"every": every, "strict": strict}, "checkpoint_every": every}


def validated(share: float, *, strict: bool = False) -> dict[str, Any]:
    """Validate every round on a share of each client's images, and report the best one."""
    return {
        "evaluation": {"every": 1, "strict": strict},
        "validation": {"share": share, "metric": "site_auc"},
        "checkpoint_every": 5,
    }
