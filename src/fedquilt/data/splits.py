"""Split samples: by a split column, by drawing whole patients, into stratified halves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedquilt.core.errors import nearest
from fedquilt.core.seeding import generator_for, seed_for
from fedquilt.data.problems import Kind, Problems

TRAIN, VALIDATION, TEST = 0, 1, 2
SPLITS = ("train", "val", "test")  # by number
SPLIT_OF = {
    **dict.fromkeys(("train", "training"), TRAIN),
    **dict.fromkeys(("val", "valid", "validation", "dev"), VALIDATION),
    **dict.fromkeys(("test", "testing"), TEST),
}

BAD_SPLIT = Kind(
    "bad-split",
    "cells of the split column that are not understood",
    "expected train, val or test in every row",
)
ONE_SIDED_SPLIT = Kind(
    "one-sided-split",
    "the split column leaves the train or the test split empty",
    "give both train and test rows, or do not name a split column: then patients are drawn",
)
SHARED_PATIENTS = Kind(
    "patients-in-both-parts",
    "patients with images in more than one split",
    "put all images of a patient in one split (train, val or test), or do not name a split column: "
    "then whole patients are drawn. With shared patients the results would be too good",
)


def split_by_column(
    values: Sequence[str],
    groups: Sequence[str] | None,
    lines: Sequence[int],
    problems: Problems,
) -> NDArray[np.int8] | None:
    """(N,): the split of each sample, ``TRAIN``, ``VALIDATION`` or ``TEST``.

    ``None`` if the column cannot be used.
    """
    found = [SPLIT_OF.get(value.casefold()) for value in values]
    for split, value, line in zip(found, values, lines):
        if split is None:
            hint = nearest(value.casefold(), SPLIT_OF) if value else ""
            problems.add(BAD_SPLIT, f"line {line}: {value[:20] or 'blank'!r}{hint}")
    if None in found:
        return None
    splits = np.array(found, dtype=np.int8)
    for split in (TRAIN, TEST):
        if not (splits == split).any():
            problems.add(ONE_SIDED_SPLIT, f"no row is {SPLITS[split]}")
    if groups is not None:
        _report_shared(groups, splits, problems)
    return splits


def _report_shared(groups: Sequence[str], splits: NDArray[np.int8], problems: Problems) -> None:
    splits_of: dict[str, set[int]] = {}
    for group, split in zip(groups, splits.tolist()):
        splits_of.setdefault(group, set()).add(split)
    shared = sorted(group for group, found in splits_of.items() if len(found) > 1)
    if shared:
        few = ", ".join(shared[:5]) + (", ..." if len(shared) > 5 else "")
        total = len(splits_of)
        problems.add(SHARED_PATIENTS, f"{len(shared):,} of {total:,} patients", private=few)


def draw_split(
    units: Sequence[str],
    marks: NDArray[np.integer | np.bool_],
    test_share: float,
    seed: int,
    sites: Sequence[str] | None = None,
) -> NDArray[np.bool_]:
    """Draw whole units (patients or images, at least two) for the test split.

    ``marks`` (N, M) counts what to stratify by, such as the positives of each class; a sample also
    counts for its site. Units with the rarest mark are assigned first, each to the split that lacks
    more of that mark. Their order depends only on their names and the seed, so the split does not
    depend on the order of the samples.
    """
    places = None if sites is None else np.unique(np.asarray(sites), return_inverse=True)[1]
    found = _counted_units(units, marks, places, "split", seed)
    is_test = _assign_units(found, test_share)
    if not is_test.any():
        is_test[found.draw.argmin()] = True
    if is_test.all():
        is_test[found.draw.argmin()] = False
    return is_test[found.of_sample]


def draw_validation(
    units: Sequence[str] | NDArray[np.str_],
    marks: NDArray[np.bool_],
    is_kept: NDArray[np.bool_],
    share: float,
    seed: int,
    places: NDArray[np.integer] | None = None,
) -> NDArray[np.bool_]:
    """Draw whole units for validation, as :func:`draw_split` does for testing.

    ``places`` (N,) numbers the client of each sample. A unit with a sample where ``is_kept`` (N,)
    is not drawn. The result may be empty.
    """
    found = _counted_units(units, marks, places, "validation", seed)
    kept = np.zeros(len(found.draw), dtype=bool)
    np.logical_or.at(kept, found.of_sample, is_kept)
    return _assign_units(found, share, kept)[found.of_sample]


@dataclass(frozen=True)
class _Units:
    """The marks of each unit, without zeros: sites are many, and a unit has few of them."""

    of_sample: NDArray[np.intp]  # (N,)
    draw: NDArray[np.float64]  # (units,)
    mark_count: int  # the last mark counts images
    ends: NDArray[np.intp]  # (units,): where each unit's marks end in the two arrays below
    marks: NDArray[np.int64]
    counts: NDArray[np.float64]

    def of(self, unit: int) -> slice:
        return slice(self.ends[unit - 1] if unit else 0, self.ends[unit])


def _counted_units(
    units: Sequence[str] | NDArray[np.str_],
    marks: NDArray[np.integer | np.bool_],
    places: NDArray[np.integer] | None,
    purpose: str,
    seed: int,
) -> _Units:
    names, unit_of = np.unique(np.asarray(units), return_inverse=True)
    sample, mark = np.nonzero(marks)
    columns = marks.shape[1]
    held = [(sample, mark, marks[sample, mark].astype(np.float64))]
    everyone, ones = np.arange(len(marks)), np.ones(len(marks))
    if places is not None:
        held.append((everyone, columns + places, ones))
        columns += int(places.max()) + 1
    held.append((everyone, np.full(len(marks), columns), ones))
    columns += 1
    samples, found, weights = (np.concatenate(each) for each in zip(*held))
    entries, entry_of = np.unique(unit_of[samples] * columns + found, return_inverse=True)
    return _Units(
        of_sample=unit_of,
        draw=np.array([seed_for(purpose, seed, str(name)) for name in names], dtype=np.float64),
        mark_count=columns,
        ends=np.searchsorted(entries, columns * np.arange(1, len(names) + 1)),
        marks=entries % columns,
        counts=np.bincount(entry_of, weights).astype(np.float64),
    )


def _assign_units(
    units: _Units, drawn_share: float, kept: NDArray[np.bool_] | None = None
) -> NDArray[np.bool_]:
    """(units,) bool: the drawn ones; those in ``kept`` never are."""
    rarity = np.bincount(units.marks, minlength=units.mark_count)
    by_rarity = np.argsort(rarity, kind="stable")
    place = np.empty(units.mark_count, dtype=np.int64)
    place[by_rarity] = np.arange(units.mark_count)
    # The place of each unit's rarest mark; there always is one, as every unit has images.
    rank = np.minimum.reduceat(place[units.marks], np.append(0, units.ends[:-1]))
    totals = np.bincount(units.marks, units.counts, minlength=units.mark_count)
    lacking = np.outer((1 - drawn_share, drawn_share), totals)  # (left/drawn, marks)
    free = np.ones(len(units.draw), dtype=bool) if kept is None else ~kept
    for unit in np.flatnonzero(~free).tolist():
        own = units.of(unit)
        lacking[0, units.marks[own]] -= units.counts[own]
    is_drawn = np.zeros(len(units.draw), dtype=bool)
    for unit in np.lexsort((units.draw, rank)).tolist():
        if not free[unit]:
            continue
        left, drawn = lacking[:, by_rarity[rank[unit]]]
        if left == drawn:
            left, drawn = lacking[:, -1]
        is_drawn[unit] = drawn > left
        own = units.of(unit)
        lacking[int(is_drawn[unit]), units.marks[own]] -= units.counts[own]
    return is_drawn


def stratified_halves(positives: Tensor, *names: int | str) -> Tensor:
    """(n,) bool: which images are in the first of two halves, stratified by ``positives`` (n, C).

    The rarest class is halved first, images without a positive last; an odd image goes to the
    smaller half. ``names`` seed the draw.
    """
    generator = generator_for(*names, "halves")
    count = len(positives)
    first = torch.zeros(count, dtype=torch.bool)
    placed = torch.zeros(count, dtype=torch.bool)
    rarest_first = positives.sum(0).argsort(stable=True).tolist()
    groups = [positives[:, column] for column in rarest_first]
    for group in (*groups, torch.ones(count, dtype=torch.bool)):
        members = (group & ~placed).nonzero().flatten()
        members = members[torch.randperm(len(members), generator=generator)]
        lead = int((group & placed & ~first).sum()) - int((group & first).sum())
        behind = 2 * int(first.sum()) < int(placed.sum())
        share = (len(members) + lead + behind) // 2
        first[members[: max(share, 0)]] = True
        placed |= group
    return first
