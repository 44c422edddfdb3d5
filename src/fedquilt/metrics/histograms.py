"""Histograms of logits: what a site sends in place of scores, and what follows from them.

The grid is the same everywhere, so no edges are negotiated: 256 bins from -16 to 16 in steps of
1/8, of which the outer two are open. Neighbouring bins are merged into cells until every cell
holds 0 or at least ``min_cell`` patients of either kind.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedquilt.metrics.thresholds import Bools, Cutoffs, Floats

BINS = 256
LOWEST, STEP = -16.0, 1 / 8
LOWER_EDGES: Floats = LOWEST + STEP * np.arange(BINS, dtype=np.float64)
CENTRES: Floats = LOWER_EDGES + STEP / 2

Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Cells:
    """Counts of one class at one site, in cells of whole bins, lowest first."""

    starts: Ints  # (K,) the first bin of each cell; the first is 0
    positives: Ints  # (K,)
    negatives: Ints
    positive_means: Floats  # (K,) the mean logit of each cell's positives, 0 without any
    negative_means: Floats

    def spread(self) -> tuple[Floats, Floats]:
        """Return (BINS,) counts of positives and negatives, each cell's spread evenly."""
        widths = np.diff(np.append(self.starts, BINS))
        return np.repeat(self.positives / widths, widths), np.repeat(
            self.negatives / widths, widths
        )


def bin_of(logits: Floats) -> Ints:
    return np.clip(np.floor((logits - LOWEST) / STEP), 0, BINS - 1).astype(np.int64)


def cells_of_scores(
    logits: Floats,
    labels: NDArray[np.integer],
    known: Bools,
    patients: NDArray[np.int64] | None = None,
    min_cell: int = 0,
) -> Cells | None:
    """Return the cells of one class at one site, or None if too few patients are of a kind.

    Args:
        logits: (N,) float, like the others.
        labels: where known, 0 or 1.
        known: entries that are not known are left out.
        patients: a number per image; None: every image is a patient.
        min_cell: patients of either kind that a cell that is not empty of it must hold.
    """
    people = np.arange(len(logits)) if patients is None else patients
    bins = bin_of(logits[known].astype(np.float64))
    positive = labels[known] == 1
    owners = people[known]
    kinds = (positive, ~positive)
    if any(len(np.unique(owners[kind])) < min_cell for kind in kinds):
        return None
    starts = _cell_starts([_by_bin(owners[kind], bins[kind]) for kind in kinds], min_cell)
    cell = np.searchsorted(starts, bins, side="right") - 1
    kept = logits[known].astype(np.float64)
    hits, others = (
        np.bincount(cell[kind], minlength=len(starts)).astype(np.int64) for kind in kinds
    )
    return Cells(
        starts,
        hits,
        others,
        _means(kept[positive], cell[positive], hits),
        _means(kept[~positive], cell[~positive], others),
    )


def _means(logits: Floats, cell: Ints, counts: Ints) -> Floats:
    """Return each cell's mean; exactly rounded, so that the order of images changes no bit."""
    return np.array(
        [math.fsum(logits[cell == k]) / count if count else 0.0 for k, count in enumerate(counts)]
    )


def _by_bin(owners: Ints, bins: Ints) -> list[set[int]]:
    found: list[set[int]] = [set() for _ in range(BINS)]
    for owner, place in zip(owners.tolist(), bins.tolist()):
        found[place].add(owner)
    return found


def _cell_starts(patients: Sequence[Sequence[set[int]]], min_cell: int) -> Ints:
    """Merge from the top down; what is left at the bottom joins the cells above it."""

    def is_allowed(kinds: Sequence[set[int]]) -> bool:
        return all(not kind or len(kind) >= min_cell for kind in kinds)

    cells: list[tuple[int, list[set[int]]]] = []
    for place in reversed(range(BINS)):
        held = [set(by_bin[place]) for by_bin in patients]
        if cells and not is_allowed(cells[-1][1]):
            held = [above | own for above, own in zip(cells.pop()[1], held)]
        cells.append((place, held))
    while len(cells) > 1 and not is_allowed(cells[-1][1]):
        _, lowest = cells.pop()
        _, above = cells.pop()
        cells.append((0, [one | other for one, other in zip(lowest, above)]))
    return np.array([start for start, _ in reversed(cells)], dtype=np.int64)


@dataclass(frozen=True)
class BoundedAuc:
    """An AUC from counts, and the bounds within which the exact one lies for certain."""

    value: float
    low: float
    high: float


def auc_of_counts(positives: Floats, negatives: Floats) -> float:
    """Return the AUC of counts by bin, lowest bin first; a tie counts half."""
    below = np.cumsum(negatives) - negatives
    pairs = positives.sum() * negatives.sum()
    return float((positives * (below + negatives / 2)).sum() / pairs) if pairs else float("nan")


def average_precision_of_counts(positives: Floats, negatives: Floats) -> float:
    """Return the AP, with the samples of a bin in random order instead of as one block."""
    total, seen, hits, result = positives.sum(), 0.0, 0.0, 0.0
    if not total:
        return float("nan")
    for a, d in zip(positives[::-1], (positives + negatives)[::-1]):
        if a:
            precision = a / d
            if seen:
                precision += (hits - seen * a / d) / d * np.log((seen + d) / seen)
            result += a / total * precision
        hits, seen = hits + a, seen + d
    return float(result)


def bounded_auc(sites: Sequence[Cells]) -> BoundedAuc:
    """Return the pooled AUC over sites, from their cells only.

    A pair of a positive and a negative whose cells overlap may be in either order, so it adds
    anything from 0 to 1; every other pair is certain.
    """
    positives, negatives = spread(sites)
    pairs = positives.sum() * negatives.sum()
    if not pairs:
        return BoundedAuc(*[float("nan")] * 3)
    certain = sum(_pairs_in_order(one, other) for one in sites for other in sites)
    unsure = sum(_overlapping_pairs(one, other) for one in sites for other in sites)
    value = auc_of_counts(positives, negatives)
    return BoundedAuc(value, certain / pairs, (certain + unsure) / pairs)


def spread(sites: Sequence[Cells]) -> tuple[Floats, Floats]:
    """Return (BINS,) positives and negatives of all sites, each cell's spread evenly."""
    columns = [site.spread() for site in sites]
    return sum(p for p, _ in columns) + np.zeros(BINS), sum(n for _, n in columns) + np.zeros(BINS)


def _ends(cells: Cells) -> Ints:
    return np.append(cells.starts[1:], BINS)


def _pairs_in_order(holds_positives: Cells, holds_negatives: Cells) -> float:
    """Count the pairs in which the positive's cell lies wholly above the negative's."""
    below = np.concatenate(([0], np.cumsum(holds_negatives.negatives)))
    ended = np.searchsorted(_ends(holds_negatives), holds_positives.starts, side="right")
    return float((holds_positives.positives * below[ended]).sum())


def _overlapping_pairs(holds_positives: Cells, holds_negatives: Cells) -> float:
    below = np.concatenate(([0], np.cumsum(holds_negatives.negatives)))
    ended = np.searchsorted(_ends(holds_negatives), holds_positives.starts, side="right")
    begun = np.searchsorted(holds_negatives.starts, _ends(holds_positives), side="left")
    return float((holds_positives.positives * (below[begun] - below[ended])).sum())


def certain_cutoffs(sites: Sequence[Cells]) -> Cutoffs:
    """Return the cutoffs at the lower edges of the bins, as what is certain of all sites.

    A threshold inside a cell may call all or none of it: its positives are counted as missed and
    its negatives as false alarms, so that sensitivity and specificity are at least as good. The
    lowest bin is open: its threshold is -inf.
    """
    hits, alarms = np.zeros(BINS), np.zeros(BINS)
    for cells in sites:
        whole = np.searchsorted(cells.starts, np.arange(BINS), side="left")
        begun = np.searchsorted(_ends(cells), np.arange(BINS), side="right")
        hits += _from(cells.positives)[whole]
        alarms += _from(cells.negatives)[begun]
    edges = np.append(LOWER_EDGES[:0:-1], -np.inf)
    return Cutoffs(
        np.concatenate(([np.inf], edges)),
        np.concatenate(([0.0], hits[::-1])),
        np.concatenate(([0.0], alarms[::-1])),
    )


def _from(counts: Ints) -> Ints:
    """Return (K + 1,) the counts of cell k and all above it."""
    return np.append(np.cumsum(counts[::-1])[::-1], 0)
