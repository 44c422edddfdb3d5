"""Curves of the design card's test data (T16), counted by hand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from fedquilt.reports.html.curves import Curves, curves_of, polyline, wilson

POSITIVE = np.array([1] * 6 + [0] * 10, dtype=bool)
SCORES = np.array([0.9, 0.8, 0.8, 0.6, 0.4, 0.3, 0.7, 0.6, 0.5, 0.4, 0.3, 0.3, 0.2, 0.2, 0.1, 0.1])
LOGITS = np.log(SCORES / (1 - SCORES))


def test_roc_has_one_point_per_distinct_score():
    roc = curves_of(LOGITS, POSITIVE, most_points=60, is_short=False).roc
    # Thresholds .9 .8 .7 .6 .5 .4 .3 .2 .1: (false alarms of 10, found of 6).
    expected = [(0, 0), (0, 1), (0, 3), (1, 3), (2, 4), (3, 4), (4, 5), (6, 6), (8, 6), (10, 6)]
    assert np.array(roc) == pytest.approx(np.array([(a / 10, b / 6) for a, b in expected]))
    area = sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(roc))
    assert area == pytest.approx(5 / 6)  # the AUC of the card


def test_precision_recall_points():
    found = curves_of(LOGITS, POSITIVE, most_points=60, is_short=False).precision_recall
    assert found[0] == pytest.approx((1 / 6, 1.0))
    assert found[3] == pytest.approx((4 / 6, 4 / 6))  # at .6: 4 found, 2 false alarms
    assert found[-1] == pytest.approx((1.0, 6 / 16))


def test_reliability_bins():
    # Ten copies of everything, because below 100 entries nothing is drawn; off the bins' edges.
    logits = np.tile(np.log((SCORES - 0.05) / (1.05 - SCORES)), 10)
    raw = curves_of(logits, np.tile(POSITIVE, 10), most_points=60, is_short=False).raw
    bins = raw.bins
    assert [each.entries for each in bins] == [20, 20, 30, 20, 10, 20, 10, 20, 10]
    assert [each.observed for each in bins] == pytest.approx([0, 0, 1 / 3, 0.5, 0, 0.5, 0, 1, 1])
    assert [each.predicted for each in bins] == pytest.approx(
        [0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85]
    )
    assert raw.error == pytest.approx(0.175)  # the card's ECE with ten bins
    assert curves_of(LOGITS, POSITIVE, most_points=60, is_short=False).raw.bins == ()


def test_calibration_slope_of_the_card():
    logits, positive = np.tile(LOGITS, 10), np.tile(POSITIVE, 10)
    raw = curves_of(logits, positive, most_points=60, is_short=False).raw
    assert raw.slope[0] == pytest.approx(1.304030690, abs=1e-6)
    assert raw.intercept[0] == pytest.approx(-0.419008739, abs=1e-6)
    assert raw.brier == pytest.approx(0.165)


def test_a_class_of_one_kind_has_no_curves():
    found = curves_of(LOGITS, np.ones(16, dtype=bool), most_points=60, is_short=False)
    assert found == Curves()


def test_with_many_classes_only_the_roc_curve_is_left():
    found = curves_of(LOGITS, POSITIVE, most_points=60, is_short=True)
    assert len(found.roc) == 10
    assert (found.precision_recall, found.raw) == ((), None)


def test_long_curves_are_thinned_and_keep_their_ends():
    draws = np.random.default_rng(1)
    positive = draws.random(5000) < 0.3
    roc = curves_of(
        draws.normal(size=5000) + positive, positive, most_points=40, is_short=False
    ).roc
    assert 30 <= len(roc) <= 40
    assert roc[0] == (0.0, 0.0)
    assert roc[-1] == (1.0, 1.0)


@pytest.mark.parametrize(
    ("hits", "count", "low", "high"),
    [
        (4, 6, 0.299993315, 0.903228589),
        (7, 9, 0.452588969, 0.936774893),
        (6, 6, 0.609665712, 1),
        (0, 6, 0, 0.390334288),
        (19, 20, 0.763868807, 0.991118551),
    ],
)
def test_wilson_intervals_of_the_card(hits: int, count: int, low: float, high: float):
    assert wilson(hits, count) == pytest.approx((low, high), abs=1e-9)


def test_points_are_written_upwards():
    assert polyline([(0.0, 0.0), (0.25, 1.0)], 100, 0) == "0,100 25,0"
