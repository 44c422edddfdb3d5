"""Ranking metrics: ROC-AUC and step-wise average precision, of each class and of all together.

Scores are sorted in pieces, classes or ranges of scores, so that the memory this takes is bounded
by a setting, however many images and classes there are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedquilt.metrics.entries import Entries, read_entries

MEMORY_MB = 256
ENTRY_BYTES = 80  # of memory while an entry is ranked
SAMPLED = 4096  # scores for each range that scores are divided into
SLACK = 1.25  # ranges of a sample's quantiles are not all of one size
POSITIVE, NEGATIVE = 1, 2  # kinds of an entry, in the last bits of a sorted key; 0: not known
KIND_BITS = np.uint64(2)
AT_ONCE = 2**20  # entries that are compared with a range

Scores: TypeAlias = npt.NDArray[np.floating]
Kinds: TypeAlias = npt.NDArray[np.uint8]
Counts: TypeAlias = npt.NDArray[np.int64]


class RankingMetrics(NamedTuple):
    """(C,) float64; NaN where undefined."""

    auc: Tensor
    ap: Tensor


class StepCurve(NamedTuple):
    """Counts at or above each distinct score of a class, highest first.

    Tied samples form one step, at the last of them; the other positions gain nothing. Counts are
    integers, so the result does not depend on the order of samples.
    """

    true_positives: Counts  # (C, N), as the others
    false_positives: Counts
    gained_true: Counts  # since the step before
    gained_false: Counts

    def doubled_area(self) -> Tensor:
        """(C,) int64: twice the number of pairs ranked rightly; a tie counts half."""
        before = self.true_positives - self.gained_true
        return torch.from_numpy(self.gained_false * (self.true_positives + before)).sum(dim=1)

    def gained_precision(self, positives: int = 0, negatives: int = 0) -> Tensor:
        """(C,) float64: the precision of each step times the positives that it adds.

        So many positives and negatives score higher than all of these.
        """
        counted = self.true_positives + self.false_positives
        counted += positives + negatives
        np.maximum(counted, 1, out=counted)  # 0 / 1 before the first known entry
        gains = (self.true_positives + positives) / counted
        gains *= self.gained_true
        return torch.from_numpy(gains).sum(dim=1)


def rank_classes(entries: Entries, memory_mb: int = MEMORY_MB) -> RankingMetrics:
    """Rank every class on its own, as many classes at a time as fit into ``memory_mb``."""
    count, width = entries.scores.shape
    at_once = max(1, _entries_in(memory_mb) // max(count, 1))
    found = []
    for first in range(0, width, at_once):
        scores, kinds = _numbers(entries, slice(first, first + at_once))
        curve = step_curve(scores.T, kinds.T)
        sums = [torch.from_numpy((kinds == kind).sum(0)) for kind in (POSITIVE, NEGATIVE)]
        found.append((curve.doubled_area(), curve.gained_precision(), *sums))
    return _metrics(*map(torch.cat, zip(*found)))


def rank_together(entries: Entries, memory_mb: int = MEMORY_MB) -> RankingMetrics:
    """Rank all classes as one binary problem, in ranges of scores that fit into ``memory_mb``."""
    room = _entries_in(memory_mb)
    scores, kinds = _numbers(entries, slice(None))
    scores, kinds = scores.reshape(1, -1), kinds.reshape(1, -1)
    sums = [torch.tensor([(kinds == kind).sum()]) for kind in (POSITIVE, NEGATIVE)]
    if kinds.size > room:
        return _metrics(*_rank_in_ranges(scores[0], kinds[0], room), *sums)
    curve = step_curve(scores, kinds)
    return _metrics(curve.doubled_area(), curve.gained_precision(), *sums)


def step_curve(scores: Scores, kinds: Kinds) -> StepCurve:
    """Return the curves of scores and kinds of shape (C, N)."""
    # Entries that are not known stay in the curve; neither positive nor negative, they add 0.
    is_step, ordered = _ordered(scores, kinds)
    true, false = (
        np.cumsum(ordered == kind, axis=1, dtype=np.int64) for kind in (POSITIVE, NEGATIVE)
    )
    return StepCurve(true, false, *(_gained(each, is_step) for each in (true, false)))


def _gained(counts: Counts, is_step: npt.NDArray[np.bool_]) -> Counts:
    """Return what each step adds to the count at the step before; 0 where there is no step."""
    latest = counts
    if not is_step.all():  # counts never decrease, so the largest step so far is the latest
        latest = np.maximum.accumulate(counts * is_step, axis=1)
    gained = latest.copy()
    gained[:, 1:] -= latest[:, :-1]
    return gained


def _ordered(scores: Scores, kinds: Kinds) -> tuple[npt.NDArray[np.bool_], Kinds]:
    """Return where a step ends and the kind of each entry, by descending score.

    Score and kind become one integer, of which numpy sorts several at a time; to sort positions
    and then gather the kinds takes far longer.
    """
    if scores.dtype == np.float64:  # too long for that
        order = np.argsort(-scores, axis=1)
        return (
            _ends(np.take_along_axis(scores, order, axis=1)),
            np.take_along_axis(kinds, order, axis=1),
        )
    bits = np.add(scores, 0.0, order="C", dtype=np.float32).view(np.uint32)  # -0.0 becomes 0.0
    descending = np.where(bits >> 31, bits, ~bits & np.uint32(0x7FFF_FFFF))
    keys = descending.astype(np.uint64)
    keys <<= KIND_BITS
    keys |= kinds
    keys.sort(axis=1)
    ordered = keys.astype(np.uint8) & np.uint8(3)
    keys >>= KIND_BITS
    return _ends(keys), ordered


def _ends(ordered: npt.NDArray[np.generic]) -> npt.NDArray[np.bool_]:
    is_step = np.ones(ordered.shape, dtype=np.bool_)
    np.not_equal(ordered[:, :-1], ordered[:, 1:], out=is_step[:, :-1])
    return is_step


def _rank_in_ranges(scores: Scores, kinds: Kinds, room: int) -> tuple[Tensor, Tensor]:
    """Return area and gain of one curve, from pieces of it that are sorted one after another."""
    area, gain, positives, negatives = 0, 0.0, 0, 0
    for low, high in _ranges(scores, room):
        inside, its_kinds = _between(scores, kinds, low, high)
        true, false = (int((its_kinds == kind).sum()) for kind in (POSITIVE, NEGATIVE))
        if low == high:  # one step, which needs no sorting
            area += false * (2 * positives + true)
            gain += true * (positives + true) / max(positives + negatives + true + false, 1)
        else:
            curve = step_curve(inside[None], its_kinds[None])
            area += int(curve.doubled_area()) + 2 * positives * false
            gain += float(curve.gained_precision(positives, negatives))
        positives, negatives = positives + true, negatives + false
    return torch.tensor([area]), torch.tensor([gain], dtype=torch.float64)


def _ranges(scores: Scores, room: int) -> Iterator[tuple[float, float]]:
    """Yield ranges of scores, highest first: ``low <= score < high``, or one score, if equal.

    The quantiles of a sample divide them. A score that several quantiles have is so frequent that
    it is a range of its own.
    """
    parts = math.ceil(SLACK * len(scores) / room)
    drawn = np.random.default_rng(0).integers(len(scores), size=parts * SAMPLED)
    sample = np.sort(scores[drawn])
    places = np.linspace(0, len(sample) - 1, parts + 1)[1:-1].astype(np.int64)
    high = math.inf
    for quantile, times in sorted(Counter(sample[places].tolist()).items(), reverse=True):
        if times > 1:
            yield float(np.nextafter(scores.dtype.type(quantile), np.inf)), high
            yield quantile, quantile
        else:
            yield quantile, high
        high = quantile
    yield -math.inf, high


def _between(scores: Scores, kinds: Kinds, low: float, high: float) -> tuple[Scores, Kinds]:
    """Return the known entries of a range, read a part at a time."""
    found = []
    for first in range(0, len(scores), AT_ONCE):
        some, its_kinds = scores[first : first + AT_ONCE], kinds[first : first + AT_ONCE]
        inside = some == low if low == high else (some >= low) & (some < high)
        places = np.flatnonzero(inside)
        found.append((some[places], its_kinds[places]))
    parts = tuple(zip(*found))
    return np.concatenate(parts[0]), np.concatenate(parts[1])


def roc_auc(scores: Tensor, labels: Tensor, known: Tensor) -> Tensor:
    """(C,) float64: the probability that a positive scores above a negative; a tie counts half."""
    return rank_classes(read_entries(scores, labels, known)).auc


def average_precision(scores: Tensor, labels: Tensor, known: Tensor) -> Tensor:
    """(C,) float64: step-wise, without interpolation."""
    return rank_classes(read_entries(scores, labels, known)).ap


def _numbers(entries: Entries, columns: slice) -> tuple[Scores, Kinds]:
    """Return scores and kinds of some classes, (N, C); half precision becomes float32."""
    scores = entries.scores[:, columns].cpu()
    positive, negative = entries.positive[:, columns].cpu(), entries.negative[:, columns].cpu()
    kinds = positive.to(torch.uint8) * POSITIVE + negative.to(torch.uint8) * NEGATIVE
    wide = scores if scores.dtype == torch.float64 else scores.float()
    return wide.detach().numpy(), kinds.numpy()


def _entries_in(memory_mb: int) -> int:
    return max(1, memory_mb * 2**20 // ENTRY_BYTES)


def _metrics(areas: Tensor, gains: Tensor, positives: Tensor, negatives: Tensor) -> RankingMetrics:
    """Divide; 0 / 0 is NaN: an AUC without positives or negatives, an AP without positives."""
    auc = areas.double() / (2 * positives * negatives).double()
    return RankingMetrics(auc, gains / positives.double())
