"""Criteria, judged on made-up numbers."""

from __future__ import annotations

import pytest

from fedquilt.recipes.papers.criterion import Above, AmongBest

LABELS = {"a": "A", "b": "B", "c": "C", "bacc": "BACC", "x": "level x", "y": "level y"}


def both(x: float, y: float) -> dict[str, float]:
    return {"x": x, "y": y}


@pytest.mark.parametrize(
    ("means", "holds"),
    [
        ({"a": both(60, 60), "b": both(80, 50), "c": both(50, 50)}, True),  # 60, 65, 50: second
        ({"a": both(60, 60), "b": both(80, 50), "c": both(61, 61)}, False),  # third
        ({"a": both(60, 60), "b": both(80, 50)}, False),  # of two, second is last
        ({"a": both(60, 60), "b": both(60, 60)}, True),  # none is above it
        ({"a": both(60, 60)}, None),
        ({"b": both(60, 60), "c": both(60, 60)}, None),
        ({"a": both(60, 60), "b": {"x": 80.0}}, None),  # no other ran in both columns
        ({"a": {"x": 60.0}, "b": both(50, 90)}, True),  # judged by the column it ran in
    ],
)
def test_among_best(means: dict[str, dict[str, float]], holds: bool | None):
    assert AmongBest(row="a", metric="bacc", places=2).judge(means, LABELS).holds is holds


def test_among_best_in_words():
    criterion = AmongBest(row="a", metric="bacc", places=2)
    assert criterion.words(LABELS) == "A is among the best 2 by average BACC"
    means = {"a": both(60, 62), "b": both(80, 50), "c": both(50, 50)}
    assert criterion.judge(means, LABELS).found == (
        "A is number 2 of 3 with 61.0; the best other is B with 65.0"
    )
    assert (
        AmongBest(row="a", metric="bacc", places=1).words(LABELS) == "A is the best by average BACC"
    )


@pytest.mark.parametrize(
    ("means", "holds"),
    [
        ({"a": both(60, 60), "b": both(59, 50), "c": both(50, 50)}, True),
        ({"a": both(60, 60), "b": both(59, 60), "c": both(50, 50)}, False),  # equal is not above
        ({"a": both(60, 60), "b": both(59, 59)}, None),  # c has not run
        ({"a": {"x": 60.0}, "b": both(59, 99), "c": both(50, 99)}, True),
        ({"a": {"x": 60.0}, "b": {"y": 59.0}, "c": {"x": 50.0}}, None),
    ],
)
def test_above(means: dict[str, dict[str, float]], holds: bool | None):
    assert Above(row="a", metric="bacc", others=("b", "c")).judge(means, LABELS).holds is holds


def test_above_in_words():
    criterion = Above(row="a", metric="bacc", others=("b",))
    assert criterion.words(LABELS) == "A's BACC is above that of B in every column"
    verdict = criterion.judge({"a": both(60, 60), "b": both(58.5, 61)}, LABELS)
    assert verdict.found == "A differs by +1.5 over B in level x, -1.0 over B in level y"
