"""The two-dimensional data sets of MedMNIST: what is to be told, and the classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SIZES = (28, 64, 128, 224)


@dataclass(frozen=True)
class Task:
    """``multi-label`` images have any number of classes, others exactly one."""

    kind: Literal["multi-label", "multi-class", "binary", "ordinal"]
    classes: tuple[str, ...]


ORGANS = (
    *("bladder", "left femur", "right femur", "heart", "left kidney", "right kidney"),
    *("liver", "left lung", "right lung", "pancreas", "spleen"),
)

TASKS = {
    "bloodmnist": Task(
        "multi-class",
        (
            *("basophil", "eosinophil", "erythroblast", "immature granulocyte"),
            *("lymphocyte", "monocyte", "neutrophil", "platelet"),
        ),
    ),
    "breastmnist": Task("binary", ("malignant", "normal or benign")),
    "chestmnist": Task(
        "multi-label",
        (
            *("atelectasis", "cardiomegaly", "effusion", "infiltration", "mass", "nodule"),
            *("pneumonia", "pneumothorax", "consolidation", "edema", "emphysema", "fibrosis"),
            *("pleural thickening", "hernia"),
        ),
    ),
    "dermamnist": Task(
        "multi-class",
        (
            *("actinic keratosis", "basal cell carcinoma", "benign keratosis", "dermatofibroma"),
            *("melanoma", "melanocytic nevus", "vascular lesion"),
        ),
    ),
    "octmnist": Task(
        "multi-class",
        ("choroidal neovascularization", "diabetic macular edema", "drusen", "normal"),
    ),
    "organamnist": Task("multi-class", ORGANS),
    "organcmnist": Task("multi-class", ORGANS),
    "organsmnist": Task("multi-class", ORGANS),
    "pathmnist": Task(
        "multi-class",
        (
            *("adipose tissue", "background", "debris", "lymphocytes", "mucus", "smooth muscle"),
            *("normal colon mucosa", "cancer-associated stroma"),
            "colorectal adenocarcinoma epithelium",
        ),
    ),
    "pneumoniamnist": Task("binary", ("normal", "pneumonia")),
    "retinamnist": Task("ordinal", tuple(f"grade {grade}" for grade in range(5))),
    "tissuemnist": Task(
        "multi-class",
        (
            *("collecting duct or connecting tubule", "distal convoluted tubule"),
            *("glomerular endothelial cell", "interstitial endothelial cell", "leukocyte"),
            *("podocyte", "proximal tubule segment", "thick ascending limb"),
        ),
    ),
}
