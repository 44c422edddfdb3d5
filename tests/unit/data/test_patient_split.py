"""Splits keep patients whole, keep proportions, and do not depend on the order of rows."""

from __future__ import annotations

import numpy as np
import pytest
from support.folder_files import full_report

from fedquilt.data.problems import Problems
from fedquilt.data.splits import TEST, TRAIN, VALIDATION, draw_split, split_by_column


def draw(count: int, patients: int) -> tuple[list[str], np.ndarray]:
    """Patients of uneven size; class 0 is common, class 1 is rare."""
    source = np.random.default_rng(0)
    units = [f"p{int(patients * value**2)}" for value in source.random(count)]
    marks = np.stack([source.random(count) < 0.3, source.random(count) < 0.02], axis=1)
    return units, marks


def test_patients_stay_whole_and_classes_keep_their_share() -> None:
    units, marks = draw(4000, 600)
    is_test = draw_split(units, marks, test_share=0.25, seed=3)
    train = {unit for unit, test in zip(units, is_test) if not test}
    test = {unit for unit, test in zip(units, is_test) if test}
    assert not train & test
    assert is_test.mean() == pytest.approx(0.25, abs=0.02)
    for column in marks.T:
        assert (column & is_test).sum() / column.sum() == pytest.approx(0.25, abs=0.05)


def test_the_draw_depends_on_names_and_seed_only() -> None:
    units, marks = draw(500, 100)
    first = draw_split(units, marks, 0.2, seed=0)
    assert np.array_equal(first, draw_split(units, marks, 0.2, seed=0))
    order = np.random.default_rng(1).permutation(500)
    shuffled = draw_split([units[row] for row in order], marks[order], 0.2, seed=0)
    assert np.array_equal(shuffled, first[order])
    assert not np.array_equal(first, draw_split(units, marks, 0.2, seed=1))


def test_worked_example() -> None:
    """Ten images, a share of 0.2: two test images, one of the five positives among them.

    Positives are assigned first: train lacks 4 and test 1 of them; test gets one when both lack 1.
    """
    marks = np.array([[True]] * 5 + [[False]] * 5)
    is_test = draw_split([f"image {i}" for i in range(10)], marks, 0.2, seed=0)
    assert is_test.sum() == 2
    assert is_test[:5].sum() == 1


@pytest.mark.parametrize("share", [0.01, 0.99])
def test_neither_split_is_empty(share: float) -> None:
    is_test = draw_split(["a", "b"], np.zeros((2, 1), dtype=bool), share, seed=0)
    assert sorted(is_test.tolist()) == [False, True]


def test_sites_count_as_one_mark_each() -> None:
    """As a table of samples by sites would, but without its memory."""
    random = np.random.default_rng(2)
    units, marks = draw(600, 200)
    sites = [f"site {number}" for number in random.integers(0, 30, 600)]
    table = np.array(sites)[:, None] == np.unique(sites)[None]
    from_table = draw_split(units, np.hstack([marks, table]), 0.2, seed=4)
    assert np.array_equal(draw_split(units, marks, 0.2, seed=4, sites=sites), from_table)
    assert not np.array_equal(draw_split(units, marks, 0.2, seed=4), from_table)


def test_every_user_may_be_a_site() -> None:
    users = [f"user {number // 2}" for number in range(60_000)]  # 7 GB as a table
    images = [str(number) for number in range(60_000)]
    marks = np.zeros((60_000, 1), dtype=bool)
    is_test = draw_split(images, marks, 0.5, seed=0, sites=users)
    assert is_test.reshape(-1, 2).sum(axis=1).tolist() == [1] * 30_000


def test_split_column_spellings() -> None:
    problems = Problems()
    values = ["train", "TEST", "val", "Validation", "valid", "testing"]
    splits = split_by_column(values, None, range(2, 8), problems)
    assert not problems
    assert splits is not None
    assert splits.tolist() == [TRAIN, TEST, VALIDATION, VALIDATION, VALIDATION, TEST]


def test_split_column_mistakes() -> None:
    problems = Problems()
    assert split_by_column(["train", "tets", ""], None, (2, 3, 4), problems) is None
    assert "line 3: 'tets'; did you mean 'test'?" in full_report(problems)
    assert "line 4: 'blank'" in full_report(problems)
    assert "expected train, val or test" in full_report(problems)
    problems = Problems()
    split_by_column(["train", "val"], None, (2, 3), problems)
    assert "no row is test" in full_report(problems)
    assert "do not name a split column" in full_report(problems)


def test_shared_patients_are_counted_and_named_only_on_the_users_screen() -> None:
    problems = Problems()
    groups = ["Jane", "Jane", "John", "Jim", "Jim"]
    split_by_column(["train", "test", "train", "val", "test"], groups, range(2, 7), problems)
    assert "2 of 3 patients: Jane, Jim" in full_report(problems)
    logged = str(problems.error("the data"))
    assert "2 of 3 patients" in logged
    assert "Jane" not in logged
    problems = Problems()
    split_by_column(["train", "val", "test"], ["Jane", "Jane", "Jim"], range(2, 5), problems)
    assert "more than one split" in full_report(problems)
    assert "1 of 2 patients: Jane" in full_report(problems)
