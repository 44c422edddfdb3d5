"""Criteria, judged on made-up numbers."""

from __future__ import annotations

import pytest

from fedquilt.recipes.papers.criterion import AheadOfSecond, AmongBest, Runs

LABELS = {"a": "A", "b": "B", "c": "C", "bacc": "BACC"}


def runs(means: dict[str, dict[str, float]]) -> Runs:
    """One seed of the metric."""
    return {
        "bacc": {
            row: {column: {0: value} for column, value in columns.items()}
            for row, columns in means.items()
        }
    }


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
    assert AmongBest(row="a", metric="bacc", places=2).judge(runs(means), LABELS).holds is holds


def test_among_best_in_words():
    criterion = AmongBest(row="a", metric="bacc", places=2)
    assert criterion.words(LABELS) == "A is among the best 2 by average BACC"
    means = {"a": both(60, 62), "b": both(80, 50), "c": both(50, 50)}
    assert criterion.judge(runs(means), LABELS).found == (
        "A is number 2 of 3 with 61.0: -4.0 (one seed, so no interval) against the best other, B"
    )
    assert (
        AmongBest(row="a", metric="bacc", places=1).words(LABELS) == "A is the best by average BACC"
    )


def test_among_best_compares_only_seeds_that_both_rows_have():
    """B is ahead by its own seeds, behind by those that A has too: 62 - 61 and 60 - 57."""
    found = AmongBest(row="a", metric="bacc", places=1).judge(
        {"bacc": {"a": {"x": {0: 62.0, 1: 60.0}}, "b": {"x": {0: 61.0, 1: 57.0, 2: 90.0}}}}, LABELS
    )
    # 2 +- 12.706 * 1.414 / sqrt(2)
    assert found.found == (
        "A is number 1 of 2 with 61.0: +2.0 (95 % interval over 2 seeds -10.7 to +14.7, which "
        "includes 0) against the best other, B"
    )
    assert found.holds


AHEAD = AheadOfSecond(row="a", metric="bacc", also=("f1",))
NAMES = LABELS | {"f1": "F1"}


def of_seeds(*values: float) -> dict[str, dict[int, float]]:
    return {"x": dict(enumerate(values))}


def test_ahead_of_second_tells_leads_and_their_intervals():
    assert AHEAD.words(NAMES) == "A is ahead of the best other method by average BACC and F1"
    found = AHEAD.judge(
        {
            "bacc": {"a": of_seeds(61, 63, 65), "b": of_seeds(60, 61, 62), "c": of_seeds(9, 9, 9)},
            "f1": {"a": of_seeds(50, 50), "b": of_seeds(40, 40), "c": of_seeds(48, 44)},
        },
        NAMES,
    )
    # Leads over b: 1, 2, 3, so 2 +- 4.303 * 1 / sqrt(3) = 2 +- 2.48. Over c by F1: 2 and 6, so
    # 4 +- 12.706 * 2.828 / sqrt(2) = 4 +- 25.41.
    assert found.found == (
        "BACC +2.0 (95 % interval over 3 seeds -0.5 to +4.5, which includes 0) over B; "
        "F1 +4.0 (95 % interval over 2 seeds -21.4 to +29.4, which includes 0) over C"
    )
    assert found.holds


@pytest.mark.parametrize(
    ("f1", "holds"),
    [
        ({"a": of_seeds(50), "b": of_seeds(49)}, True),
        ({"a": of_seeds(50), "b": of_seeds(51)}, False),  # behind by one of the two
        ({"a": of_seeds(50)}, None),
        ({}, None),
        ({"a": {"x": {0: 50.0}}, "b": {"x": {1: 49.0}}}, None),  # no seed in common
        ({"a": {"x": {0: 50.0}}, "b": {"y": {0: 49.0}}}, None),  # no column in common
    ],
)
def test_ahead_of_second(f1: dict[str, dict[str, dict[int, float]]], holds: bool | None):
    bacc = {"a": of_seeds(60), "b": of_seeds(59)}
    assert AHEAD.judge({"bacc": bacc, "f1": f1}, NAMES).holds is holds
