"""Split samples: by a split column, by drawing whole patients, into stratified halves."""

from __future__ import annotations

from collections.abc import Sequence

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
    units: Sequence[str], marks: NDArray[np.integer], test_share: float, seed: int
) -> NDArray[np.bool_]:
    """Draw whole units (patients or images, at least two) for the test split.

    ``marks`` (N, M) counts what to stratify by: the positives of each class, the images of each
    site. Units with the rarest mark are assigned first, each to the split that lacks more of that
    mark. Their order depends only on their names and the seed, so the split does not depend on the
    order of the samples.
    """
    unit_of, counts, draw = _counted_units(units, marks, "split", seed)
    is_test = _assign_units(counts, draw, test_share)
    if not is_test.any():
        is_test[draw.argmin()] = True
    if is_test.all():
        is_test[draw.argmin()] = False
    return is_test[unit_of]


def draw_validation(
    units: Sequence[str] | NDArray[np.str_],
    marks: NDArray[np.bool_],
    is_kept: NDArray[np.bool_],
    share: float,
    seed: int,
) -> NDArray[np.bool_]:
    """Draw whole units for validation, as :func:`draw_split` does for testing.

    A unit with a sample where ``is_kept`` (N,) is not drawn. The result may be empty.
    """
    unit_of, counts, draw = _counted_units(units, marks, "validation", seed)
    kept = np.zeros(len(counts), dtype=bool)
    np.logical_or.at(kept, unit_of, is_kept)
    return _assign_units(counts, draw, share, kept)[unit_of]


def _counted_units(
    units: Sequence[str] | NDArray[np.str_],
    marks: NDArray[np.integer | np.bool_],
    purpose: str,
    seed: int,
) -> tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.float64]]:
    """Return each sample's unit, the units' marks (the last column counts images), their draws."""
    names, unit_of = np.unique(np.asarray(units), return_inverse=True)
    counts = np.zeros((len(names), marks.shape[1] + 1))
    np.add.at(counts, unit_of, np.hstack([marks, np.ones((len(marks), 1), dtype=marks.dtype)]))
    draw = np.array([seed_for(purpose, seed, str(name)) for name in names], dtype=np.float64)
    return unit_of, counts, draw


def _assign_units(
    counts: NDArray[np.float64],
    draw: NDArray[np.float64],
    drawn_share: float,
    kept: NDArray[np.bool_] | None = None,
) -> NDArray[np.bool_]:
    """(units,) bool: the drawn ones; those in ``kept`` never are."""
    rarity = (counts > 0).sum(axis=0)
    by_rarity = np.argsort(rarity, kind="stable")
    # The rank of each unit's rarest mark; there always is one, as every unit has images.
    rank = (counts[:, by_rarity] > 0).argmax(axis=1)
    lacking = np.outer((1 - drawn_share, drawn_share), counts.sum(axis=0))  # (left/drawn, marks)
    free = np.ones(len(counts), dtype=bool) if kept is None else ~kept
    lacking[0] -= counts[~free].sum(axis=0)
    is_drawn = np.zeros(len(counts), dtype=bool)
    for unit in np.lexsort((draw, rank)):
        if not free[unit]:
            continue
        left, drawn = lacking[:, by_rarity[rank[unit]]]
        if left == drawn:
            left, drawn = lacking[:, -1]
        is_drawn[unit] = drawn > left
        lacking[int(is_drawn[unit])] -= counts[unit]
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
