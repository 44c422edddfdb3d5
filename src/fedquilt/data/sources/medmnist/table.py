"""The sets of MedMNIST: kind of task and classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Task:
    """A set's task; ``multi-label`` images have any number of classes, others exactly one."""

    kind: Literal["multi-label", "multi-class", "binary", "ordinal"]
    classes: tuple[str, ...]
    is_of_volumes: bool = False

    @property
    def sizes(self) -> tuple[int, ...]:
        return (28, 64) if self.is_of_volumes else (28, 64, 128, 224)


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
    "adrenalmnist3d": Task("binary", ("normal", "hyperplasia"), is_of_volumes=True),
    "fracturemnist3d": Task(
        "multi-class",
        ("buckle rib fracture", "nondisplaced rib fracture", "displaced rib fracture"),
        is_of_volumes=True,
    ),
    "nodulemnist3d": Task("binary", ("benign", "malignant"), is_of_volumes=True),
    "organmnist3d": Task(
        "multi-class",
        (
            *("liver", "right kidney", "left kidney", "right femur", "left femur", "bladder"),
            *("heart", "right lung", "left lung", "spleen", "pancreas"),
        ),
        is_of_volumes=True,
    ),
    "synapsemnist3d": Task(
        "binary", ("inhibitory synapse", "excitatory synapse"), is_of_volumes=True
    ),
    "vesselmnist3d": Task("binary", ("vessel", "aneurysm"), is_of_volumes=True),
}
