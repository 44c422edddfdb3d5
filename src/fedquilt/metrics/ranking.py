"""Ranking metrics: ROC-AUC and step-wise average precision, of each class and of all together.

Positives and negatives are sorted apart, and each positive is looked up among the negatives. Scores
are sorted in pieces, classes or ranges of scores, so that the memory this takes is bounded by a
setting, however many images and classes there are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedquilt.metrics.entries import Entries, blocks_of_rows, read_entries

SAMPLED = 4096  # scores for each range that scores are divided into
SLACK = 1.25  # ranges of a sample's quantiles are not all of one size
AT_ONCE = 2**18  # entries that are compared with a range
LOOKED_UP = 2**16  # positives at a time

Numbers: TypeAlias = npt.NDArray[Any]


class RankingMetrics(NamedTuple):
    """(C,) float64; NaN where undefined."""

    auc: Tensor
    ap: Tensor


@dataclass
class Curve:
    """What is known of one binary problem so far, from the highest scores down.

    Counts are integers, so that they do not depend on the order of samples.
    """

    positives: int = 0
    negatives: int = 0
    doubled_area: int = 0  # twice the number of pairs ranked rightly; a tie counts half
    gain: float = 0.0  # of each positive the precision at its score, summed

    def add(self, true: Numbers, false: Numbers) -> None:
        """Add the scores of all positives and negatives of a range below those before.

        Both arrays are sorted in place.
        """
        true.sort()
        false.sort()
        right = 0
        for first in range(0, len(true), LOOKED_UP):
            some = true[first : first + LOOKED_UP]
            below = np.searchsorted(false, some, "left")
            right += int(below.sum()) + int(np.searchsorted(false, some, "right").sum())
            reached = self.positives + len(true) - np.searchsorted(true, some, "left")
            counted = reached + (self.negatives + len(false) - below)
            self.gain += float((reached / counted).sum())
        self._count(len(true), len(false), right)

    def add_tied(self, true: int, false: int) -> None:
        """Add so many positives and negatives of one score below those before."""
        reached, counted = self.positives + true, self.positives + self.negatives + true + false
        self.gain += true * reached / max(counted, 1)
        self._count(true, false, true * false)

    def _count(self, true: int, false: int, doubled_area: int) -> None:
        self.doubled_area += doubled_area + 2 * self.positives * false
        self.positives += true
        self.negatives += false


def rank_classes(entries: Entries) -> RankingMetrics:
    """Rank every class on its own."""
    scores = _plain(entries.scores.T.contiguous())
    positive, negative = (each.T.cpu().numpy() for each in (entries.positive, entries.negative))
    curves = []
    for row, is_true, is_false in zip(scores, positive, negative):
        curves.append(Curve())
        curves[-1].add(row[is_true], row[is_false])
    return _metrics(curves)


def rank_together(scores: Tensor, labels: Tensor, known: Tensor, room: int) -> RankingMetrics:
    """Rank all classes as one binary problem, about ``room`` entries at once.

    The tensors are (N, C) and were checked by :func:`read_entries`.
    """
    curve, table = Curve(), (scores, labels, known)
    for low, high in _ranges(scores, room):
        if low == high:  # one step, which needs no sorting
            counts = [(len(true), len(false)) for true, false in _inside(low, high, *table)]
            curve.add_tied(*map(sum, zip(*counts)))
        else:
            curve.add(*map(np.concatenate, zip(*_inside(low, high, *table))))
    return _metrics([curve])


def _inside(low: float, high: float, *table: Tensor) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield the scores of a range, of positives and of negatives, a part of the table at a time."""
    for rows in blocks_of_rows(table[0], AT_ONCE):
        scores, labels, known = (_plain(each[rows]).reshape(-1) for each in table)
        is_inside = scores == low if low == high else (scores >= low) & (scores < high)
        places = np.flatnonzero(is_inside & known)
        is_true = labels[places] == 1
        yield scores[places[is_true]], scores[places[~is_true]]


def _ranges(scores: Tensor, room: int) -> Iterator[tuple[float, float]]:
    """Yield ranges of scores, highest first: ``low <= score < high``, or one score, if equal.

    The quantiles of a sample divide them. A score that several quantiles have is so frequent that
    it is a range of its own.
    """
    high = math.inf
    if scores.numel() > room:
        parts = math.ceil(SLACK * scores.numel() / room)
        drawn = np.random.default_rng(0).integers(scores.numel(), size=parts * SAMPLED)
        rows, columns = map(torch.from_numpy, np.divmod(drawn, scores.shape[1]))
        sample = np.sort(_plain(scores[rows.to(scores.device), columns.to(scores.device)]))
        places = np.linspace(0, len(sample) - 1, parts + 1)[1:-1].astype(np.int64)
        for quantile, times in sorted(Counter(sample[places].tolist()).items(), reverse=True):
            if times > 1:
                yield float(np.nextafter(sample.dtype.type(quantile), np.inf)), high
                yield quantile, quantile
            else:
                yield quantile, high
            high = quantile
    yield -math.inf, high


def roc_auc(scores: Tensor, labels: Tensor, known: Tensor) -> Tensor:
    """(C,) float64: the probability that a positive scores above a negative; a tie counts half."""
    return rank_classes(read_entries(scores, labels, known)).auc


def average_precision(scores: Tensor, labels: Tensor, known: Tensor) -> Tensor:
    """(C,) float64: step-wise, without interpolation."""
    return rank_classes(read_entries(scores, labels, known)).ap


def _plain(values: Tensor) -> Numbers:
    """Return numbers of the host; those of half precision become float32."""
    is_half = values.is_floating_point() and values.dtype != torch.float64
    found: Numbers = (values.float() if is_half else values).detach().cpu().numpy()
    return found


def _metrics(curves: list[Curve]) -> RankingMetrics:
    """Divide; 0 / 0 is NaN: an AUC without positives or negatives, an AP without positives."""
    areas, pairs, positives = (
        torch.tensor(column, dtype=torch.int64).double()
        for column in (
            [each.doubled_area for each in curves],
            [2 * each.positives * each.negatives for each in curves],
            [each.positives for each in curves],
        )
    )
    gains = torch.tensor([each.gain for each in curves], dtype=torch.float64)
    return RankingMetrics(areas / pairs, gains / positives)
