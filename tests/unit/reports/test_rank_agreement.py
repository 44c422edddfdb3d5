"""Spearman's rank correlation, compared with numbers computed by hand."""

from __future__ import annotations

import pytest

from fedquilt.reports.reproduced import spearman


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([1, 2, 3], [10, 20, 90], 1.0),
        ([1, 2, 3], [9, 2, 1], -1.0),
        # 1 - 6 * (0 + 1 + 1 + 0) / (4 * 15), by squared differences of ranks
        ([1, 2, 3, 4], [1, 3, 2, 4], 0.8),
        # ranks 1.5, 1.5, 3 and 1, 2, 3: centred -.5 -.5 1 and -1 0 1; 1.5 / sqrt(1.5 * 2)
        ([5, 5, 7], [1, 2, 3], 0.8660254),
    ],
)
def test_spearman(one: list[float], other: list[float], expected: float):
    assert spearman(one, other) == pytest.approx(expected)
    assert spearman(other, one) == pytest.approx(expected)


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0], [4.0, 4.0, 4.0]])
def test_undefined_correlation(values: list[float]):
    assert spearman(values, values) is None
