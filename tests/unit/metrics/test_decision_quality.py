from __future__ import annotations

import numpy as np
import pytest
from support.sixteen_images import KNOWN, LABELS, LOGITS, SCORES

from fedquilt.metrics.decision_quality import calibration_quality, threshold_quality
from fedquilt.metrics.labelled_images import LabelledImages

IMAGES = LabelledImages.of(LABELS[:, None].astype(np.uint8), KNOWN[:, None])


def test_the_promise_stands_beside_what_is_reached():
    stored = {"a": {"logit": 0.0, "probability": 0.5, "sensitivity": 0.95, "specificity": 0.8}}
    present = (LOGITS >= 0)[:, None]
    found = threshold_quality(IMAGES, LOGITS[:, None], present, ["a"], stored)["a"]
    assert found["promised"] == {"sensitivity": 0.95, "specificity": 0.8}
    # Wilson's intervals of 4/6 and 7/10.
    assert found["sensitivity"] == {
        "value": pytest.approx(4 / 6),
        "low": pytest.approx(0.299993315, abs=1e-9),
        "high": pytest.approx(0.903228589, abs=1e-9),
        "right": 4,
        "of": 6,
    }
    assert found["specificity"]["low"] == pytest.approx(0.396778147, abs=1e-9)
    assert threshold_quality(IMAGES, LOGITS[:, None], present, ["a"], {}) == {}


def test_calibration_before_and_after():
    platt = {"a": {"slope": 1.304030690, "intercept": -0.419008739}}
    found = calibration_quality(IMAGES, LOGITS[:, None], ["a"], platt)["a"]
    assert found["raw"]["brier"] == pytest.approx(0.165)
    assert found["raw"]["slope"][0] == pytest.approx(1.304030690, abs=1e-8)
    assert found["calibrated"]["brier"] == pytest.approx(0.159027053, abs=1e-8)
    assert found["calibrated"]["slope"][0] == pytest.approx(1, abs=1e-6)
    assert found["calibrated"]["intercept"][0] == pytest.approx(0, abs=1e-6)
    assert found["raw"]["ece"] is None  # of 16 images it would be its own bias
    assert sum(found["raw"]["bins"]["count"]) == len(SCORES)
    assert "calibrated" not in calibration_quality(IMAGES, LOGITS[:, None], ["a"], {})["a"]


def test_bars_of_the_reliability_diagram():
    images = LabelledImages.of(np.array([[1], [1], [0]], np.uint8), np.ones((3, 1), bool))
    logits = np.array([[3.0], [2.5], [2.9]])  # probabilities above .9: one bin
    bars = calibration_quality(images, logits, ["a"], {})["a"]["raw"]["bins"]
    assert (bars["count"], bars["positives"]) == ([3], [2])
    assert (bars["from"], bars["to"]) == ([0.9], [1.0])
    # Wilson's interval of 2/3: (2/3 + z^2/6 -+ z sqrt(2/27 + z^2/36)) / (1 + z^2/3), z 1.959964.
    assert (bars["low"][0], bars["high"][0]) == pytest.approx((0.207660, 0.938508), abs=2e-6)
