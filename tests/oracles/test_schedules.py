"""The Gaussian ramp on the numbers of the method cards."""

from __future__ import annotations

import pytest

from fedquilt.training.warm_up import gaussian_ramp


@pytest.mark.parametrize(
    ("round_index", "end", "expected"),
    [
        (0, 499, 0.0053904),  # 0.8 exp(-5)
        (10, 499, 0.0053904),
        (255, 499, 0.2303774),  # 0.8 exp(-5 (1 - 245 / 489)^2)
        (499, 499, 0.8),
        (900, 499, 0.8),
        (30, 49, 0.2441768),  # 0.8 exp(-5 (19 / 39)^2)
    ],
)
def test_four_fifths_of_the_ramp(round_index: int, end: int, expected: float) -> None:
    assert 0.8 * gaussian_ramp(round_index, 10, end) == pytest.approx(expected, abs=6e-8)


def test_a_ramp_of_length_0_is_1() -> None:
    assert gaussian_ramp(0, 7, 7) == 1.0
