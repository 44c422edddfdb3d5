"""Clients as clusters of label patterns."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from support.label_table import composites, random_table, table

from fedquilt.core.errors import UserError
from fedquilt.data.partitions.k_modes import KModes, fill_empty, find_modes, mismatches
from fedquilt.data.partitions.strata import label_patterns


def test_patterns_are_the_distinct_label_vectors() -> None:
    positives = np.array([[0, 1], [1, 0], [0, 1], [0, 0]], dtype=bool)
    patterns, pattern_of = label_patterns(positives)
    assert patterns.tolist() == [[False, False], [False, True], [True, False]]
    assert np.array_equal(patterns[pattern_of], positives)


def test_k_modes_counts_mismatches() -> None:
    sample, centre = np.array([[0, 1, 1, 1]], dtype=bool), np.array([[1, 0, 1, 1]], dtype=bool)
    assert mismatches(sample, centre).tolist() == [[2]]
    assert mismatches(centre, centre).tolist() == [[0]]


def test_one_mode_is_the_majority_of_each_class_and_a_tie_is_zero() -> None:
    patterns = np.array([[0, 0, 1], [1, 0, 1], [1, 1, 0]], dtype=bool)
    # Counts 2, 1, 1 of 4 images: class 0 has 2 (a tie), class 1 has 1, class 2 has 3.
    modes, history = find_modes(patterns, np.array([2, 1, 1]), clusters=1, iterations=100)
    assert modes.tolist() == [[False, False, True]]
    assert history[-1] == 2 + 1 + 1  # class 0 differs twice, class 1 once, class 2 once


@pytest.mark.parametrize("seed", range(20))
def test_k_modes_improves_and_leaves_no_cluster_empty(seed: int) -> None:
    data = random_table(images=150, classes=5, seed=seed)
    assignment = KModes(clients=8).assign(data, seed=0)
    history = assignment.notes["mismatches"]
    assert history == sorted(history, reverse=True)
    assert min(len(rows) for rows in assignment.indices) > 0
    client_of = {int(row): k for k, rows in enumerate(assignment.indices) for row in rows}
    owners: dict[tuple[int, ...], set[int]] = {}
    for row, label in enumerate(((data.labels == 1) & data.known).int().tolist()):
        owners.setdefault(tuple(label), set()).add(client_of[row])
    assert all(len(each) == 1 for each in owners.values())  # equal vectors share a client


def test_an_empty_cluster_restarts_at_the_farthest_vector() -> None:
    patterns = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 1], [1, 1, 1]], dtype=bool)
    # Three equal modes 000: the first wins every vector. The second restarts at 111, 3 mismatches
    # away; then 001 and 011 are 1 away from the nearest mode, and the third restarts at the first.
    modes = fill_empty(patterns, np.zeros((3, 3), dtype=bool))
    assert modes.astype(int).tolist() == [[0, 0, 0], [1, 1, 1], [0, 0, 1]]


def test_k_modes_restarts_a_cluster_that_lost_its_members() -> None:
    # Found by search: an update of the modes leaves the last of four clusters without members.
    words = "0001100 0011011 0110000 0110100 1000000 1000101 1010001 1011001 1011110 1011111 "
    words += "1101000 1110101"
    patterns = np.array([[letter == "1" for letter in word] for word in words.split()])
    counts = np.array([4, 2, 4, 5, 4, 2, 4, 4, 5, 1, 4, 1])
    modes, history = find_modes(patterns, counts, clusters=4, iterations=100)
    assert set(mismatches(patterns, modes).argmin(axis=1).tolist()) == {0, 1, 2, 3}
    assert history == sorted(history, reverse=True)


def test_k_modes_with_a_cluster_for_each_vector_has_no_mismatch() -> None:
    data = composites(4, singles=3, per_pair=2)  # 4 + 6 different vectors
    assignment = KModes(clients=10).assign(data, seed=0)
    assert assignment.notes["mismatches"][-1] == 0
    with pytest.raises(UserError, match="10 different label vectors, too few"):
        KModes(clients=11).assign(data, seed=0)


def test_capped_k_modes_moves_the_surplus_to_the_nearest_client_with_room() -> None:
    # Modes 000, 110 and 111 by frequency. Of ten 000 images six stay; 110 (two mismatches) has
    # room for two and 111 (three) takes the other two.
    data = table([[0, 0, 0]] * 10 + [[1, 1, 0]] * 4 + [[1, 1, 1]] * 3)
    assignment = KModes(clients=3, largest_client=6).assign(data, seed=0)
    counts = [Counter(data.labels[rows].sum(1).tolist()) for rows in assignment.indices]
    assert counts == [{0: 6}, {2: 4, 0: 2}, {3: 3, 0: 2}]
    with pytest.raises(UserError, match="raise largest_client to 6 or more"):
        KModes(clients=3, largest_client=5).assign(data, seed=0)
