"""The part ``site_report``: the same numbers as pooled, under the floor, and checked on arrival."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.t16 import both_classes

from fedquilt.core.payload import Gather
from fedquilt.core.totals import Accumulator
from fedquilt.core.update_checks import RefusedUpdate
from fedquilt.deploy.server.site_results import by_site
from fedquilt.metrics.class_intervals import model_intervals
from fedquilt.metrics.decision_quality import reliability
from fedquilt.privacy.site_report import (
    CALIBRATION,
    DECISIONS,
    NUMBERS,
    PART,
    SiteReportCheck,
    expected_report,
    site_report,
)

CLASSES = ("one", "two")


def t16_report(garbage: float = 0.0, **floor: int) -> Gather:
    images, scores, _ = both_classes(garbage)
    return site_report(images, scores, scores, scores >= 0.5, on_test=True, **floor)


def number(part: Gather, name: str, column: int) -> float | None:
    value: Any = part.value
    row = NUMBERS.index(name)
    return float(value["numbers"][row, column]) if value["known"][row, column] else None


def test_one_site_is_pooled() -> None:
    images, scores, _ = both_classes()
    pooled = model_intervals(images, scores, scores >= 0.5, CLASSES)
    found = by_site({"site": t16_report().value}, CLASSES, "global")  # type: ignore[dict-item]
    at_site = found["intervals"]["site"]
    for name in ("images", "patients", "unit", "positives", "negative_patients"):
        assert at_site[name] == pooled[name], name
    for metric in ("auc", "ap"):
        for end in ("value", "low", "high"):
            assert at_site["per_class"][metric][end] == pooled["per_class"][metric][end]
    macro = pooled["averages"]["macro_auc"]
    assert at_site["averages"]["macro_auc"] == {key: macro[key] for key in ("value", "low", "high")}
    per_class = found["reports"]["site"]["per_class"]
    for ours, theirs in (("recall", "sensitivity"), ("specificity",) * 2, ("precision", "ppv")):
        assert per_class[ours] == pooled["per_class"][theirs]["value"]
    assert found["part"] == {"site": "test"}
    assert number(t16_report(), "auc_variance", 0) == pytest.approx(0.0202266785360)
    assert [number(t16_report(), name, 0) for name in DECISIONS] == [4, 2, 3, 7]
    quality = reliability(scores[:, 0], images.labels[:, 0] == 1)
    calibration = [number(t16_report(), name, 0) for name in CALIBRATION]
    assert calibration == [quality[n] for n in CALIBRATION[:2]] + [
        quality[n][0] for n in CALIBRATION[2:]
    ]


def test_garbage_in_unannotated_labels_and_scores_changes_no_bit() -> None:
    one, other = t16_report(0.0).value, t16_report(7.0).value
    assert all(torch.equal(one[name], other[name]) for name in one)  # type: ignore[index, call-overload]


def test_a_class_of_too_few_patients_is_left_out_as_if_it_had_none() -> None:
    # Class 1 has 5 patients with it and 6 without, class 2 has 4 and 6.
    part = t16_report(min_cell=5)
    value: Any = part.value
    assert [number(part, "positives", column) for column in (0, 1)] == [6, 0]
    assert not value["numbers"][:, 1].any()
    assert number(part, "auc", 0) == number(t16_report(), "auc", 0)
    assert value["macro"][0] == number(part, "auc", 0)
    nothing: Any = t16_report(min_cell=11).value
    assert not nothing["numbers"].any()
    assert not nothing["macro"].any()
    assert nothing["sizes"].tolist() == [0, 0]


def test_small_counts_of_errors_can_be_withheld() -> None:
    part = t16_report(min_cell_errors=3)  # two patients have a missed positive
    assert [number(part, name, 0) for name in DECISIONS] == [None] * 4
    assert number(part, "auc", 0) is not None
    assert [number(t16_report(min_cell_errors=2), name, 0) for name in DECISIONS] == [4, 2, 3, 7]


def change(name: str, column: int, value: float, known: int = 1) -> Gather:
    part = t16_report()
    content: Any = {key: tensor.clone() for key, tensor in part.value.items()}  # type: ignore[union-attr]
    content["numbers"][NUMBERS.index(name), column] = value
    content["known"][NUMBERS.index(name), column] = known
    return Gather(content)


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (change("auc", 0, 1.5), "outside of 0 to 1"),
        (change("auc", 0, 0.1), "lies outside of its interval"),
        (change("positives", 0, 6.5), "is no count"),
        (change("positives", 0, -1), "is no count"),
        (change("positives", 0, 16), "more entries than images"),
        (change("positive_patients", 0, 7), "more patients than images"),
        (change("true_positives", 0, 5), "on positives do not add up"),
        (change("false_positives", 0, 5), "on negatives do not add up"),
        (change("auc_variance", 0, -1), "negative"),
        (change("brier", 0, 0.1, known=0), "not known is not 0"),
        (change("ap", 0, float("nan")), "NaN"),
    ],
)
def test_the_server_refuses_what_cannot_be(part: Gather, reason: str) -> None:
    annotated = torch.tensor([True, True])
    totals = Accumulator(expected_report(2), 1, SiteReportCheck(lambda site: annotated, CLASSES))
    with pytest.raises(RefusedUpdate, match=reason):
        totals.add("site", {PART: part})


def test_the_server_refuses_a_class_that_the_site_does_not_annotate() -> None:
    annotated = torch.tensor([True, False])
    totals = Accumulator(expected_report(2), 1, SiteReportCheck(lambda site: annotated, CLASSES))
    with pytest.raises(RefusedUpdate, match=r"does not annotate \(class 'two'\)"):
        totals.add("site", {PART: t16_report()})


def test_a_site_without_images_sends_nothing() -> None:
    value: Any = expected_report(3)[PART].value
    assert not value["numbers"].any()
    found = by_site({"empty": value}, ("a", "b", "c"), "global")
    assert found["reports"]["empty"]["averages"]["macro_auc"] is None
    assert np.all(np.array(found["reports"]["empty"]["per_class"]["positives"]) == 0)
