"""Split samples in two: by a split column, by drawing whole patients, into stratified halves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedquilt.core.errors import nearest
from fedquilt.core.seeding import generator_for, seed_for
from fedquilt.data.problems import Kind, Problems

IS_TEST = {
    **dict.fromkeys(("train", "training", "val", "valid", "validation", "dev"), False),
    **dict.fromkeys(("test", "testing"), True),
}

BAD_SPLIT = Kind(
    "bad-split",
    "cells of the split column that are not understood",
    "expected train, val or test in every row (val joins train)",
)
ONE_SIDED_SPLIT = Kind(
    "one-sided-split",
    "the split column leaves the train or the test split empty",
    "give both train and test rows, or do not name a split column: then patients are drawn",
)
SHARED_PATIENTS = Kind(
    "patients-in-both-parts",
    "patients with images in both train and test",
    "put all images of a patient in one split, or do not name a split column: then whole patients "
    "are drawn. With shared patients the test results would be too good",
)


def split_by_column(
    values: Sequence[str],
    groups: Sequence[str] | None,
    lines: Sequence[int],
    problems: Problems,
) -> NDArray[np.bool_] | None:
    """(N,) bool: whether a sample is in the test split; ``None`` if the column cannot be used."""
    found = [IS_TEST.get(value.casefold()) for value in values]
    for in_test, value, line in zip(found, values, lines):
        if in_test is None:
            hint = nearest(value.casefold(), IS_TEST) if value else ""
            problems.add(BAD_SPLIT, f"line {line}: {value[:20] or 'blank'!r}{hint}")
    if None in found:
        return None
    is_test = np.array(found, dtype=bool)
    for split, members in (("train", ~is_test), ("test", is_test)):
        if not members.any():
            problems.add(ONE_SIDED_SPLIT, f"no row is {split}")
    if groups is not None:
        _report_shared(groups, is_test, problems)
    return is_test


def _report_shared(groups: Sequence[str], is_test: NDArray[np.bool_], problems: Problems) -> None:
    train: set[str] = set()
    test: set[str] = set()
    for group, in_test in zip(groups, is_test):
        (test if in_test else train).add(group)
    shared = sorted(train & test)
    if shared:
        few = ", ".join(shared[:5]) + (", ..." if len(shared) > 5 else "")
        total = len(train | test)
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
    names, unit_of = np.unique(np.asarray(units), return_inverse=True)
    counts = np.zeros((len(names), marks.shape[1] + 1))  # the last column counts images
    np.add.at(counts, unit_of, np.hstack([marks, np.ones((len(marks), 1), dtype=marks.dtype)]))
    draw = np.array([seed_for("split", seed, str(name)) for name in names], dtype=np.float64)
    is_test = _assign_units(counts, draw, test_share)
    if not is_test.any():
        is_test[draw.argmin()] = True
    if is_test.all():
        is_test[draw.argmin()] = False
    return is_test[unit_of]


def _assign_units(
    counts: NDArray[np.float64], draw: NDArray[np.float64], test_share: float
) -> NDArray[np.bool_]:
    rarity = (counts > 0).sum(axis=0)
    by_rarity = np.argsort(rarity, kind="stable")
    # The rank of each unit's rarest mark; there always is one, as every unit has images.
    rank = (counts[:, by_rarity] > 0).argmax(axis=1)
    lacking = np.outer((1 - test_share, test_share), counts.sum(axis=0))  # (train/test, marks)
    is_test = np.zeros(len(counts), dtype=bool)
    for unit in np.lexsort((draw, rank)):
        train, test = lacking[:, by_rarity[rank[unit]]]
        if train == test:
            train, test = lacking[:, -1]
        is_test[unit] = test > train
        lacking[int(is_test[unit])] -= counts[unit]
    return is_test


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
