"""Plan: which images go where on the canvases of a composite data set.

Following P. Li et al., "Neural collapse in multi-label learning with pick-all-label loss" (2023):
single images, and pairs of images of two classes in opposite corners.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedquilt.core.errors import UserError
from fedquilt.core.seeding import seed_for

Numbers: TypeAlias = NDArray[np.int64]
# (generator, which images go to the lower right corner, pad) -> (top, left) of the images.
Placing: TypeAlias = Callable[
    [np.random.RandomState, NDArray[np.bool_], int], tuple[Numbers, Numbers]
]


@dataclass(frozen=True)
class Pieces:
    """Images on canvases: ``image[i]`` is on canvas ``row[i]``; ``row`` is sorted and distinct."""

    row: Numbers
    image: Numbers
    top: Numbers
    left: Numbers


@dataclass(frozen=True)
class Plan:
    """All canvases of a split; every canvas has a first piece, those of pairs also a second."""

    labels: NDArray[np.uint8]  # (N, C)
    first: Pieces
    second: Pieces


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where images may go on a canvas."""

    pad: int  # pixels by which a canvas is wider than an image
    placing: Placing
    single_corner: Literal["coin", "lower right"]


def towards_centre(
    random: np.random.RandomState, is_lower_right: NDArray[np.bool_], pad: int
) -> tuple[Numbers, Numbers]:
    """Start in a corner and shift by less than a quarter of the pad along the diagonal."""
    shift = random_below(random, max(1, pad // 4), len(is_lower_right))
    offset = np.where(is_lower_right, pad - shift, shift)
    return offset, offset


def rolled(
    random: np.random.RandomState, is_lower_right: NDArray[np.bool_], pad: int
) -> tuple[Numbers, Numbers]:
    """Start in a corner and shift down and to the right; the overhang wraps around when painted."""
    corner = np.where(is_lower_right, pad, 0)
    down, right = (random_below(random, max(1, pad // 4), len(corner)) for _ in range(2))
    return corner + down, corner + right


def random_below(random: np.random.RandomState, bound: int, count: int) -> Numbers:
    """``count`` random integers in ``0..bound - 1``."""
    # Without the dtype, the numbers would depend on the platform's default integer.
    return np.asarray(random.randint(0, bound, count, dtype=np.int64))


def draw_plan(
    targets: Numbers,
    class_names: tuple[str, ...],
    layout: Layout,
    *,
    singles: int | None,
    pairs: int,
    names: tuple[str | int, ...],
) -> Plan:
    """Plan ``singles`` canvases per class (None: all images) and ``pairs`` per pair of classes.

    Each group of canvases has its own generator, seeded by ``names`` and its classes, so that the
    number of canvases in one group does not affect another.
    """
    pools = [np.flatnonzero(targets == each) for each in range(len(class_names))]
    groups: list[tuple[int, ...]] = [(each,) for each in range(len(pools))]
    groups += combinations(range(len(pools)), 2)
    labels: list[NDArray[np.uint8]] = []
    drawn: list[list[Pieces]] = []
    start = 0
    for group in groups:
        wanted = pairs if len(group) == 2 else singles
        count = len(pools[group[0]]) if wanted is None else wanted
        for each in group:
            _check_available(len(pools[each]), count, class_names[each], names)
        # NumPy guarantees that this generator's numbers never change.
        random = np.random.RandomState(seed_for("composites", *names, *group) % 2**32)
        rows = np.arange(start, start + count)
        drawn.append(_draw_group(random, [pools[each] for each in group], rows, layout))
        labels.append(np.zeros((count, len(pools)), np.uint8))
        labels[-1][:, group] = 1
        start += count
    first, second = (
        _joined([each[index] for each in drawn if index < len(each)]) for index in (0, 1)
    )
    return Plan(np.concatenate(labels), first, second)


def _draw_group(
    random: np.random.RandomState, pools: list[Numbers], rows: Numbers, layout: Layout
) -> list[Pieces]:
    chosen = [pool[random.permutation(len(pool))[: len(rows)]] for pool in pools]
    if len(pools) == 1 and layout.single_corner == "lower right":
        is_lower_right = np.ones(len(rows), bool)
    else:
        is_lower_right = random_below(random, 2, len(rows)) == 1
    corners = (is_lower_right, ~is_lower_right)  # the second image goes to the opposite corner
    return [
        Pieces(rows, images, *layout.placing(random, corner, layout.pad))
        for images, corner in zip(chosen, corners)
    ]


def _joined(pieces: list[Pieces]) -> Pieces:
    row, image, top, left = (
        np.concatenate([getattr(each, name) for each in pieces] or [np.zeros(0, np.int64)])
        for name in ("row", "image", "top", "left")
    )
    return Pieces(row, image, top, left)


def _check_available(have: int, wanted: int, name: str, names: tuple[str | int, ...]) -> None:
    if wanted > have:
        raise UserError(
            f"{names[0]}: {wanted} images of {name!r} are needed in the {names[-1]} split, "
            f"but there are {have}; use fewer singles or pairs"
        )
