from __future__ import annotations

import json
from math import isnan

import pytest
import torch

from fedquilt.core.errors import UserError
from fedquilt.metrics import Report, by_annotation_status, nan_to_none, score

CLASSES = ("a", "b", "c")
LABELS = torch.tensor([[1, 1, 0], [0, 0, 0]])


def report_with_auc(first: bool, second: bool) -> Report:
    """AUC 1 for a class ranked correctly, else 0; undefined for class c, without positives."""
    probabilities = torch.full((2, 3), 0.5)
    for column, is_correct in enumerate((first, second)):
        probabilities[0, column] += 0.2 if is_correct else -0.2
    return score(probabilities, LABELS, torch.ones_like(LABELS).bool(), CLASSES)


def test_one_global_model():
    result = by_annotation_status(
        report_with_auc(True, False),
        {"north": [True, False, False], "south": [True, True, True], "east": [False, False, True]},
    )
    auc = {
        client: (status["annotated"]["macro_auc"], status["unannotated"]["macro_auc"])
        for client, status in result["clients"].items()
    }
    assert auc["north"] == (1, 0)
    assert auc["south"][0] == 1 / 2
    assert isnan(auc["south"][1])  # annotates everything
    assert isnan(auc["east"][0])  # annotates only the class that has no positive
    assert auc["east"][1] == 1 / 2
    assert result["mean"]["annotated"]["macro_auc"] == (1 + 1 / 2) / 2
    assert result["mean"]["unannotated"]["macro_auc"] == (0 + 1 / 2) / 2
    assert result["client_count"]["annotated"]["macro_auc"] == 2
    assert result["client_count"]["unannotated"]["macro_auc"] == 2
    assert result["client_count"]["annotated"]["macro_f1"] == 3  # undefined F1 counts as 0


def test_a_model_per_client():
    result = by_annotation_status(
        {"north": report_with_auc(True, False), "south": report_with_auc(False, False)},
        {"south": [True, False, False], "north": [True, False, False]},
    )
    assert result["clients"]["north"]["annotated"]["macro_auc"] == 1
    assert result["clients"]["south"]["annotated"]["macro_auc"] == 0
    assert result["mean"]["annotated"]["macro_auc"] == 1 / 2
    assert set(result["mean"]["annotated"]) == {"macro_auc", "map", "bacc", "macro_f1"}


def test_without_unannotated_classes_their_mean_is_undefined():
    result = by_annotation_status(report_with_auc(True, True), {"north": [True, True, True]})
    assert all(isnan(value) for value in result["mean"]["unannotated"].values())
    assert set(result["client_count"]["unannotated"].values()) == {0}
    stored = json.loads(json.dumps(nan_to_none(result), allow_nan=False))
    assert stored["mean"]["unannotated"]["map"] is None
    assert stored["mean"]["annotated"]["map"] == 1


def test_reports_and_annotations_must_be_of_the_same_clients():
    with pytest.raises(UserError, match=r"\['north'\] but annotations of \['south'\]"):
        by_annotation_status({"north": report_with_auc(True, True)}, {"south": [True] * 3})


def test_annotations_must_cover_every_class():
    with pytest.raises(UserError, match="2 selections for 3 classes"):
        by_annotation_status(report_with_auc(True, True), {"north": [True, False]})
