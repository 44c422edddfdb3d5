"""Every way to cut rows in two: by patient, by column, in stratified halves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedquilt.core.errors import nearest
from fedquilt.core.seeding import generator_for, seed_for
from fedquilt.data.problems import Kind, Problems


def stratified_halves(positives: Tensor, *names: int | str) -> Tensor:
    """(n,) bool: the first half of images with these positives (n, C); drawn by the names.

    The rarest class is shared out first, images without a positive last. An odd one goes to the
    half that is behind.
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


IS_TEST = {
    **dict.fromkeys(("train", "training", "val", "valid", "validation", "dev"), False),
    **dict.fromkeys(("test", "testing"), True),
}

BAD_SPLIT = Kind(
    "bad-split",
    "split cells that are not understood",
    "expected train, val or test in every row (val joins train)",
)
ONE_SIDED_SPLIT = Kind(
    "one-sided-split",
    "the split column leaves a part empty",
    "give both train and test rows, or do not name a split column (then patients are drawn)",
)
SHARED_PATIENTS = Kind(
    "patients-in-both-parts",
    "patients with images in both train and test",
    "put all images of a patient in one part, or do not name a split column: then the parts are "
    "drawn by patient. With shared patients the test results would be too good",
)


def split_by_column(
    values: Sequence[str],
    groups: Sequence[str] | None,
    lines: Sequence[int],
    problems: Problems,
) -> NDArray[np.bool_] | None:
    """Which rows are test rows; ``None`` if the column cannot be used."""
    sides = [IS_TEST.get(value.casefold()) for value in values]
    for side, value, line in zip(sides, values, lines):
        if side is None:
            hint = nearest(value.casefold(), IS_TEST) if value else ""
            problems.add(BAD_SPLIT, f"line {line}: {value[:20] or 'blank'!r}{hint}")
    if None in sides:
        return None
    is_test = np.array(sides, dtype=bool)
    for part, rows in (("train", ~is_test), ("test", is_test)):
        if not rows.any():
            problems.add(ONE_SIDED_SPLIT, f"no row is {part}")
    if groups is not None:
        _report_shared(groups, is_test, problems)
    return is_test


def _report_shared(groups: Sequence[str], is_test: NDArray[np.bool_], problems: Problems) -> None:
    parts: tuple[set[str], set[str]] = (set(), set())
    for group, side in zip(groups, is_test):
        parts[int(side)].add(group)
    shared = sorted(parts[0] & parts[1])
    if shared:
        few = ", ".join(shared[:5]) + (", ..." if len(shared) > 5 else "")
        total = len(parts[0] | parts[1])
        problems.add(SHARED_PATIENTS, f"{len(shared):,} of {total:,} patients", private=few)


def draw_split(
    units: Sequence[str], marks: NDArray[np.integer], test_share: float, seed: int
) -> NDArray[np.bool_]:
    """Draw whole units (patients, or images; at least two) for the test part.

    ``marks`` (N, M) counts what both parts should have in proportion: the positives of each class,
    the images of each site. Units are dealt rarest mark first, in an order that depends on their
    names and the seed only, to the part that still lacks more of that mark; the split is
    therefore the same for any order of the rows.
    """
    names, unit_of_row = np.unique(np.asarray(units), return_inverse=True)
    counts = np.zeros((len(names), marks.shape[1] + 1))  # the last column counts images
    np.add.at(counts, unit_of_row, np.hstack([marks, np.ones((len(marks), 1), dtype=marks.dtype)]))
    draw = np.array([seed_for("split", seed, str(name)) for name in names], dtype=np.float64)
    is_test = _deal(counts, draw, test_share)
    if not is_test.any():
        is_test[draw.argmin()] = True
    if is_test.all():
        is_test[draw.argmin()] = False
    return is_test[unit_of_row]


def _deal(
    counts: NDArray[np.float64], draw: NDArray[np.float64], test_share: float
) -> NDArray[np.bool_]:
    rarity = (counts > 0).sum(axis=0)
    by_rarity = np.argsort(rarity, kind="stable")
    # Each unit's rarest mark; every unit has images, so the search always ends.
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
