"""AUC, AP and thresholds from histograms, with their certain bounds."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score
from support.sixteen_images import KNOWN, LABELS, LOGITS, PATIENTS, SITES

from fedquilt.metrics.calibration import Outcomes, fit_platt
from fedquilt.metrics.histograms import (
    BINS,
    CENTRES,
    LOWER_EDGES,
    Cells,
    auc_of_counts,
    average_precision_of_counts,
    bin_of,
    bounded_auc,
    cells_of_scores,
    certain_cutoffs,
)
from fedquilt.metrics.threshold_rules import read_rule
from fedquilt.metrics.thresholds import choose, cutoffs_of_scores

# Sixteen images by probability, in 10, 5, 4 and 2 bins: positives, negatives, AUC, bounds, AP.
COUNTED = {
    10: (
        *([0, 0, 0, 1, 1, 0, 1, 0, 2, 1], [0, 2, 2, 2, 1, 1, 1, 1, 0, 0]),
        *(0.8333333333, 0.8, 0.8666666667, 0.798447090),
    ),
    5: (
        *([0, 1, 1, 1, 3], [2, 4, 2, 2, 0]),
        *(0.8333333333, 0.7666666667, 0.9, 0.813641303),
    ),
    4: ([0, 2, 1, 3], [4, 3, 3, 0], 0.825, 0.75, 0.9, None),
    2: ([2, 4], [7, 3], 0.6833333333, 0.4666666667, 0.9, None),
}


def as_cells(positives: list[int], negatives: list[int]) -> Cells:
    """Put each bin into a cell of its own; the last cell is wider, which changes no pair."""
    means = np.zeros(len(positives))
    return Cells(np.arange(len(means)), np.array(positives), np.array(negatives), means, means)


@pytest.mark.parametrize("bins", COUNTED)
def test_auc_and_average_precision_of_counts(bins: int):
    positives, negatives, auc, low, high, precision = COUNTED[bins]
    counts = np.array(positives, float), np.array(negatives, float)
    assert auc_of_counts(*counts) == pytest.approx(auc, abs=1e-9)
    bounded = bounded_auc([as_cells(positives, negatives)])
    assert (bounded.low, bounded.high) == pytest.approx((low, high), abs=1e-9)
    if precision is not None:
        assert average_precision_of_counts(*counts) == pytest.approx(precision, abs=1e-9)


@pytest.mark.parametrize(("bins", "as_blocks"), [(10, 0.787037037), (5, 0.775132275)])
def test_a_bin_as_one_block_underestimates_average_precision(bins: int, as_blocks: float):
    positives, negatives, *_, spread = COUNTED[bins]
    scores = np.repeat(np.arange(bins), np.add(positives, negatives))
    labels = np.concatenate([np.repeat([1, 0], pair) for pair in zip(positives, negatives)])
    assert average_precision_score(labels, scores) == pytest.approx(as_blocks, abs=1e-9)
    assert spread > as_blocks


def test_the_grid_has_open_ends():
    assert bin_of(np.array([-1e9, -16, -15.876, -15.875, 0, 15.99, 16, 1e9])).tolist() == [
        *(0, 0, 0, 1, 128, 255, 255, 255)
    ]
    assert (LOWER_EDGES[0], LOWER_EDGES[128], LOWER_EDGES[-1]) == (-16, 0, 15.875)


def test_without_a_floor_the_fine_histogram_gives_the_exact_auc():
    cells = cells_of_scores(LOGITS, LABELS, KNOWN)
    assert cells is not None
    assert len(cells.starts) == BINS
    assert cells.positive_means @ cells.positives == pytest.approx(LOGITS[:6].sum())
    assert cells.negative_means @ cells.negatives == pytest.approx(LOGITS[6:].sum())
    positives, negatives = cells.spread()
    assert auc_of_counts(positives, negatives) == pytest.approx(roc_auc_score(LABELS, LOGITS))


def test_sites_are_pooled_within_the_bound():
    parts = [cells_of_scores(LOGITS, LABELS, site == SITES) for site in (0, 1)]
    sites = [part for part in parts if part is not None]
    whole = cells_of_scores(LOGITS, LABELS, KNOWN)
    assert whole is not None
    assert bounded_auc(sites) == bounded_auc([whole])
    assert bounded_auc(sites[::-1]) == bounded_auc(sites)


def merged(min_cell: int, seed: int, n_positive: int = 100, n_negative: int = 1000) -> Cells:
    logits, labels = drawn(seed, n_positive, n_negative)
    cells = cells_of_scores(logits, labels, np.ones(len(logits), bool), min_cell=min_cell)
    assert cells is not None
    return cells


def drawn(seed: int, n_positive: int, n_negative: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    logits = np.concatenate([random.normal(-3, 1.5, n_positive), random.normal(-5, 1, n_negative)])
    return logits, np.repeat([1, 0], [n_positive, n_negative])


@pytest.mark.parametrize("seed", range(5))
def test_every_cell_holds_none_or_enough_and_nothing_is_lost(seed: int):
    cells = merged(10, seed)
    for counts, total in ((cells.positives, 100), (cells.negatives, 1000)):
        assert counts.sum() == total
        assert not ((counts > 0) & (counts < 10)).any()
    logits, labels = drawn(seed, 100, 1000)
    bounded = bounded_auc([cells])
    assert bounded.low <= roc_auc_score(labels, logits) <= bounded.high


def test_cells_left_at_the_documented_sizes():
    # On average over 50 other draws at a floor of 10: 2.7, 8.2 and 18.4 filled cells.
    for sizes, draws, expected in (((30, 300), 50, 2.7), ((100, 1000), 20, 8.2)):
        filled = [
            ((cells.positives + cells.negatives) > 0).sum()
            for cells in (merged(10, seed, *sizes) for seed in range(draws))
        ]
        assert np.mean(filled) == pytest.approx(expected, rel=0.1)


def test_the_floor_counts_patients_not_images():
    # Six positives, of the patients 0 0 1 2 3 4: five people.
    assert cells_of_scores(LOGITS, LABELS, KNOWN, PATIENTS, min_cell=6) is None
    cells = cells_of_scores(LOGITS, LABELS, KNOWN, PATIENTS, min_cell=5)
    assert cells is not None
    assert cells.positives.max() == 6  # all five patients are needed in one cell
    assert cells_of_scores(LOGITS, LABELS, KNOWN, None, min_cell=6) is not None


def test_the_bottom_joins_the_cells_above_it():
    # From the top: 2 positives, then 2 negatives, then 1 of each: the last joins both above it.
    logits = np.array([5.0, 5, 3, 3, 1, 1])
    labels = np.array([1, 1, 0, 0, 1, 0])
    cells = cells_of_scores(logits, labels, KNOWN[:6], min_cell=2)
    assert cells is not None
    filled = (cells.positives + cells.negatives) > 0
    assert cells.positives[filled].tolist() == [3]
    assert cells.negatives[filled].tolist() == [3]


@pytest.mark.parametrize("min_cell", [0, 10])
def test_overlapping_cells_of_two_sites_keep_the_bound_certain(min_cell: int):
    draws = [drawn(seed, 100, 1000) for seed in (1, 2)]
    sites = [
        cells_of_scores(logits, labels, np.ones(len(logits), bool), min_cell=min_cell)
        for logits, labels in draws
    ]
    kept = [site for site in sites if site is not None]
    assert len(kept) == 2
    pooled = roc_auc_score(
        np.concatenate([labels for _, labels in draws]),
        np.concatenate([logits for logits, _ in draws]),
    )
    bounded = bounded_auc(kept)
    assert bounded.low <= pooled <= bounded.high
    assert bounded.low <= bounded.value <= bounded.high
    assert bounded.value == pytest.approx(pooled, abs=0.001 if min_cell == 0 else 0.03)


def test_thresholds_lie_at_lower_edges_and_reach_their_target():
    logits, labels = drawn(0, 300, 3000)
    cells = cells_of_scores(logits, labels, np.ones(len(logits), bool))
    assert cells is not None
    cutoffs = certain_cutoffs([cells])
    exact = cutoffs_of_scores(logits, labels, np.ones(len(logits), bool))
    for text in ("sensitivity>=0.9", "specificity>=0.9", "youden"):
        rule = read_rule(text)
        near, best = choose(rule, cutoffs), choose(rule, exact)
        assert cutoffs.logits[near] in LOWER_EDGES
        assert cutoffs.logits[near] == pytest.approx(exact.logits[best], abs=0.25)
    reached = choose(read_rule("sensitivity>=0.9"), cutoffs)
    assert (logits[labels == 1] >= cutoffs.logits[reached]).mean() >= 0.9


def test_platt_scaling_from_bins_is_near_the_exact_one():
    logits, labels = drawn(3, 1000, 20000)
    cells = cells_of_scores(logits, labels, np.ones(len(logits), bool))
    assert cells is not None
    binned = fit_platt(Outcomes(CENTRES, *cells.spread()))
    exact = fit_platt(Outcomes(logits, 1.0 * (labels == 1), 1.0 * (labels == 0)))
    assert binned is not None
    assert exact is not None
    assert binned.slope == pytest.approx(exact.slope, rel=0.003)


def test_a_class_without_positives_is_undefined():
    none = np.zeros(4)
    assert np.isnan(auc_of_counts(none, none + 1))
    assert np.isnan(average_precision_of_counts(none, none + 1))
    assert np.isnan(bounded_auc([as_cells([0, 0], [1, 2])]).value)


def test_what_cutoffs_of_cells_promise_is_certain():
    # Cells of site 1: bins 0-9, 10-19 and 20-255; of site 2: bins 0-14 and 15-255.
    one = Cells(
        np.array([0, 10, 20]), np.array([1, 2, 4]), np.array([30, 20, 10]), *2 * [np.zeros(3)]
    )
    two = Cells(np.array([0, 15]), np.array([8, 16]), np.array([200, 100]), *2 * [np.zeros(2)])
    cutoffs = certain_cutoffs([one, two])
    at = {
        place: (cutoffs.true_positives[256 - place], cutoffs.false_positives[256 - place])
        for place in (0, 9, 10, 12, 15, 20, 21)
    }
    assert at == {
        0: (31, 360),
        9: (6 + 16, 60 + 300),  # inside the lowest cell of both
        10: (6 + 16, 30 + 300),
        12: (4 + 16, 30 + 300),  # inside 10-19: its 2 positives may be missed
        15: (4 + 16, 30 + 100),
        20: (4 + 0, 10 + 100),
        21: (0, 10 + 100),
    }
    assert cutoffs.logits[256] == -np.inf
    assert cutoffs.logits[256 - 15] == -16 + 15 / 8


@pytest.mark.parametrize("text", ["sensitivity>=0.9", "specificity>=0.9"])
def test_a_promised_rate_holds_on_the_scores_under_the_floor(text: str):
    draws = [drawn(seed, 200, 1000) for seed in (3, 4)]
    sites = [cells_of_scores(z, y, np.ones(len(z), bool), min_cell=10) for z, y in draws]
    cutoffs = certain_cutoffs([site for site in sites if site is not None])
    place = choose(read_rule(text), cutoffs)
    z, y = (np.concatenate(column) for column in zip(*draws))
    called = z >= cutoffs.logits[place]
    rates = {"sensitivity": called[y == 1].mean(), "specificity": (~called)[y == 0].mean()}
    assert rates[text.split(">")[0]] >= 0.9
    assert rates["sensitivity"] >= cutoffs.sensitivity()[place]
    assert rates["specificity"] >= cutoffs.specificity()[place]
