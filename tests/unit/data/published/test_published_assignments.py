"""The published client tables, from the published rule; image counts at full size."""

from __future__ import annotations

import csv
import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support.label_table import LabelTable

from fedquilt.data.allocation import Allocation, allocate
from fedquilt.data.annotations.rules import Full, Identified, Missing
from fedquilt.data.partitions.dirichlet_presence import DirichletPresence
from fedquilt.data.partitions.iid import Iid

# As the NIH lists them; FedLSM's code starts from the alphabetical order.
NIH_CLASSES = (
    *("Atelectasis", "Cardiomegaly", "Effusion", "Infiltration", "Mass", "Nodule", "Pneumonia"),
    *("Pneumothorax", "Consolidation", "Edema", "Emphysema", "Fibrosis", "Pleural_Thickening"),
    "Hernia",
)
FEDLSM_XRAY = [
    {"Consolidation", "Edema", "Pneumothorax"},
    {"Pneumonia", "Fibrosis", "Hernia"},
    {"Mass", "Pleural_Thickening", "Infiltration"},
    {"Effusion", "Atelectasis", "Cardiomegaly"},
    {"Emphysema", "Nodule", "Pneumothorax"},
    {"Nodule", "Pleural_Thickening", "Fibrosis"},
    {"Cardiomegaly", "Hernia", "Infiltration"},
    {"Consolidation", "Hernia", "Infiltration"},
]
ISIC_CLASSES = ("MEL", "NV", "BCC", "AKIEC", "BKL", "DF", "VASC")  # the challenge's columns
FEDLSM_ISIC = [
    {"BKL", "VASC", "NV"},
    {"NV", "DF", "BCC"},
    {"MEL", "DF", "BCC"},
    {"AKIEC", "BCC", "DF"},
    {"BCC", "BKL", "AKIEC"},
]
XRAY_RULE = Identified(identified=3, published=True, class_order="alphabetical")


def identified(mask: torch.Tensor, classes: tuple[str, ...]) -> list[set[str]]:
    return [{name for name, has in zip(classes, row) if has} for row in mask.tolist()]


def test_fedlsm_xray_classes() -> None:
    clients = tuple("ABCDEFGH")
    mask = XRAY_RULE.mask(clients, NIH_CLASSES, seed=0)
    assert identified(mask, NIH_CLASSES) == FEDLSM_XRAY
    # The seed in the released settings gives another table, with a class twice at one client.
    other = replace(XRAY_RULE, published_seed=524).mask(clients, NIH_CLASSES, seed=0)
    assert identified(other, NIH_CLASSES) != FEDLSM_XRAY
    assert int(other.sum()) < 24


def test_fedlsm_isic_classes() -> None:
    rule = Identified(identified=3, published=True)
    mask = rule.mask(tuple("ABCDE"), ISIC_CLASSES, seed=0)
    assert identified(mask, ISIC_CLASSES) == FEDLSM_ISIC


@pytest.fixture(scope="module")
def entries(shared_folder: Path) -> list[dict[str, str]]:
    path = shared_folder / "data" / "nih_labels" / "Data_Entry_2017_v2020.csv.gz"
    with gzip.open(path, "rt", newline="") as file:
        return list(csv.DictReader(file))


def train_and_validation_names(shared_folder: Path) -> set[str]:
    path = shared_folder / "data" / "nih_labels" / "train_val_list.txt.gz"
    with gzip.open(path, "rt") as file:
        return set(file.read().split())


def label_table(rows: list[dict[str, str]], classes: tuple[str, ...]) -> LabelTable:
    labels = torch.zeros(len(rows), len(classes), dtype=torch.uint8)
    column = {name: number for number, name in enumerate(classes)}
    for row, entry in enumerate(rows):
        found = entry["Finding Labels"].split("|")
        labels[row, [column[name] for name in found if name in column]] = 1
    known = torch.ones_like(labels, dtype=torch.bool)
    return LabelTable(labels=labels, known=known, classes=classes)


def sizes(allocation: Allocation) -> list[int]:
    return [len(holding.indices) for holding in allocation.holdings]


@pytest.mark.shared
def test_fedlsm_xray_clients_at_full_size(
    entries: list[dict[str, str]], shared_folder: Path
) -> None:
    names = train_and_validation_names(shared_folder)
    assert len(entries) == 112_120
    assert len(entries) - len(names) == 25_596  # the official test list
    rows = [entry for entry in entries if entry["Image Index"] in names]
    train = len(rows) * 7 // 8  # seven to one for validation: 75,708 images
    chosen = np.sort(np.random.default_rng(523).permutation(len(rows))[:train])
    data = label_table([rows[row] for row in chosen], NIH_CLASSES)

    allocation = allocate(data, Iid(clients=8), XRAY_RULE, seed=0)

    assert sizes(allocation) == [9463] * 8  # about 9.46 thousand
    assert allocation.protocol["notes"] == {"dropped_images": 75_708 - 8 * 9463}
    assert identified(allocation.annotation_map(), NIH_CLASSES) == FEDLSM_XRAY
    annotators = dict(zip(NIH_CLASSES, allocation.annotation_map().sum(0).tolist()))
    assert annotators["Infiltration"] == 3
    assert sum(annotators.values()) == 24
    positives = allocation.positive_counts(data.labels)
    assert torch.equal(positives > 0, allocation.annotation_map())  # each has positives to learn
    held = torch.cat([holding.indices for holding in allocation.holdings])
    assert len(held.unique()) == 8 * 9463


@pytest.mark.shared
def test_fedmlp_xray_clients_at_full_size(entries: list[dict[str, str]]) -> None:
    rows = [entry for entry in entries if entry["View Position"] == "PA"]
    assert len(rows) == 67_310
    counts = label_table(rows, NIH_CLASSES).labels.long().sum(0)
    frequent = tuple(NIH_CLASSES[column] for column in counts.topk(8).indices)
    data = label_table(rows[: len(rows) * 7 // 10], frequent)
    assert len(data.labels) == 47_117
    for missing in (1, 3, 5, 7):
        rule = Missing(missing=missing, one_to_one=missing == 7)
        allocation = allocate(data, Iid(clients=8), rule, seed=0)
        assert sizes(allocation) == [5889] * 8
        assert (allocation.annotation_map().sum(1) == 8 - missing).all()
        for holding, row in zip(allocation.holdings, allocation.annotation_map()):
            assert torch.equal(holding.known, row.expand_as(holding.known))


@pytest.mark.shared
@pytest.mark.parametrize("concentration", [0.5, 0.1])
def test_fednca_ml_xray_clients_at_full_size(
    entries: list[dict[str, str]], concentration: float
) -> None:
    data = label_table(entries[:75_000], NIH_CLASSES)
    partition = DirichletPresence(clients=10, concentration=concentration, presence_share=0.5)
    allocation = allocate(data, partition, Full(), seed=0)
    present = allocation.positive_counts(data.labels) > 0
    assert present.sum(1).max() <= 7
    assert present.any(0).all()
    dropped = allocation.protocol["notes"]["dropped_images"]
    assert sum(sizes(allocation)) == 75_000 - dropped
    assert dropped < 75_000 * 0.03  # most images have at most two findings, which the sets cover
    without = [int((data.labels[each.indices].sum(1) == 0).sum()) for each in allocation.holdings]
    assert max(without) - min(without) <= 1
