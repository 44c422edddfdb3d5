"""Which images go where on the canvases of a composite data set: drawn first, painted later.

The recipe is that of P. Li et al., "Neural collapse in multi-label learning with pick-all-label
loss" (2023): singles, and pairs of images of two classes in opposite corners.
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
# Draws (top, left) of images, given which of them go to the lower right corner, and the pad.
Placing: TypeAlias = Callable[
    [np.random.RandomState, NDArray[np.bool_], int], tuple[Numbers, Numbers]
]


@dataclass(frozen=True)
class Pieces:
    """Images on canvases: ``image[i]`` is on canvas ``row[i]``; rows are distinct and sorted."""

    row: Numbers
    image: Numbers
    top: Numbers
    left: Numbers


@dataclass(frozen=True)
class Plan:
    """All draws of a part; every canvas has a first piece, those of pairs a second."""

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
    """A corner, then up to a quarter of the pad (exclusive) along the diagonal."""
    shift = below(random, max(1, pad // 4), len(is_lower_right))
    place = np.where(is_lower_right, pad - shift, shift)
    return place, place


def rolled(
    random: np.random.RandomState, is_lower_right: NDArray[np.bool_], pad: int
) -> tuple[Numbers, Numbers]:
    """A corner, then a shift down and one to the right; what leaves the canvas comes in again."""
    corner = np.where(is_lower_right, pad, 0)
    down, right = (below(random, max(1, pad // 4), len(corner)) for _ in range(2))
    return corner + down, corner + right


def below(random: np.random.RandomState, bound: int, count: int) -> Numbers:
    # Without the type the numbers would depend on the platform's own integers.
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

    Each group of canvases has a generator named by ``names`` and its classes, so the number of
    canvases in one group changes nothing in another.
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
            _require(len(pools[each]), count, class_names[each], names)
        # NumPy promises to never change this generator's numbers.
        random = np.random.RandomState(seed_for("composites", *names, *group) % 2**32)
        rows = np.arange(start, start + count)
        drawn.append(_draw_group(random, [pools[each] for each in group], rows, layout))
        labels.append(np.zeros((count, len(pools)), np.uint8))
        labels[-1][:, group] = 1
        start += count
    first, second = (
        _joined([each[place] for each in drawn if place < len(each)]) for place in (0, 1)
    )
    return Plan(np.concatenate(labels), first, second)


def _draw_group(
    random: np.random.RandomState, pools: list[Numbers], rows: Numbers, layout: Layout
) -> list[Pieces]:
    chosen = [pool[random.permutation(len(pool))[: len(rows)]] for pool in pools]
    if len(pools) == 1 and layout.single_corner == "lower right":
        is_lower_right = np.ones(len(rows), bool)
    else:
        is_lower_right = below(random, 2, len(rows)) == 1
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


def _require(have: int, wanted: int, name: str, names: tuple[str | int, ...]) -> None:
    if wanted > have:
        raise UserError(
            f"{names[0]}: {wanted} images of {name!r} are asked for in the {names[-1]} part, "
            f"but there are {have}; ask for fewer singles or pairs"
        )
