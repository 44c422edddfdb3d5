"""Labels, mask, patients, sites and splits as a Python program gives them, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedquilt.core.errors import UserError, nearest
from fedquilt.core.wording import counted
from fedquilt.data.problems import Problems
from fedquilt.data.splits import SPLIT_OF, TEST, TRAIN, draw_split, split_by_column


@dataclass(frozen=True)
class Labels:
    """Checked labels; ``values`` mean nothing where not ``known``."""

    values: Tensor  # (N, C) uint8
    known: Tensor  # (N, C) bool
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.values)


def labels_of(labels: Any, known: Any | None, classes: Sequence[str] | None, count: int) -> Labels:
    """Check labels for ``count`` images."""
    given = np.asarray(labels)
    if given.dtype == object:  # a list with None for "not annotated"
        given = np.array([[np.nan if each is None else each for each in row] for row in given])
    if given.ndim != 2 or given.dtype.kind not in "biuf":
        raise UserError(
            "labels must be numbers of shape (N, C), one row per image and one column per class; "
            f"found {given.dtype} of shape {given.shape}"
        )
    if len(given) != count:
        raise UserError(
            f"found {counted(len(given), 'row')} of labels for {counted(count, 'image')}; "
            "give one each"
        )
    blank = np.isnan(given) if given.dtype.kind == "f" else np.zeros(given.shape, dtype=bool)
    mask = ~blank if known is None else np.asarray(known)
    if mask.dtype != bool or mask.shape != given.shape:
        raise UserError(
            f"known must be bool of shape {given.shape}, like the labels; found {mask.dtype} of "
            f"shape {mask.shape}"
        )
    _check_values(given, mask)
    values = np.where(mask, np.nan_to_num(given), 0).astype(np.uint8)
    return Labels(
        torch.from_numpy(values), torch.from_numpy(mask.copy()), _class_names(classes, given)
    )


def _check_values(given: NDArray[Any], mask: NDArray[np.bool_]) -> None:
    wrong = mask & (given != 0) & (given != 1)
    if not wrong.any():
        return
    row, column = np.argwhere(wrong)[0]
    hint = "; if -1 is not annotated, give known=labels >= 0" if (given[wrong] == -1).all() else ""
    raise UserError(
        f"labels must be 0 or 1 where they are known; found {given[row, column]} in row {row}, "
        f"column {column}, and {int(wrong.sum()):,} such values in all{hint}"
    )


def _class_names(classes: Sequence[str] | None, labels: NDArray[Any]) -> tuple[str, ...]:
    width = labels.shape[1]
    names = tuple(f"class {c}" for c in range(width)) if classes is None else tuple(classes)
    if len(names) != width or len(set(names)) != width or not all(names):
        raise UserError(
            f"classes must be {width} distinct names, one per column of the labels; found "
            f"{len(names)}: {', '.join(map(repr, names[:5]))}"
        )
    return names


def names_of(what: str, given: Sequence[Any] | None, labels: Labels) -> tuple[str, ...] | None:
    """Return patients or sites as text."""
    if given is None:
        return None
    names = tuple(str(each) for each in given)
    if len(names) != len(labels):
        raise UserError(
            f"found {counted(len(names), what)} for {counted(len(labels), 'image')}; give one "
            "for each"
        )
    return names


def splits_of(
    labels: Labels,
    groups: Sequence[str] | None,
    sites: Sequence[str] | None,
    split: Sequence[str] | None,
    test_share: float,
    seed: int,
) -> NDArray[np.int8]:
    """(N,): the split of each image, as given or drawn by patient."""
    count = len(labels)
    if split is not None:
        return _given_splits(split, groups, count)
    if not 0 < test_share < 1:
        raise UserError(
            f"test_share is {test_share}; expected a share between 0 and 1, such as 0.2"
        )
    units = [str(row) for row in range(count)] if groups is None else groups
    if len(set(units)) < 2:
        raise UserError(
            f"found {counted(len(set(units)), 'image' if groups is None else 'patient')} to draw a "
            "test part from; give at least two, or split=, or test="
        )
    marks = (labels.known & labels.values.bool()).numpy()
    is_test = draw_split(units, marks, test_share, seed, sites)
    return np.where(is_test, TEST, TRAIN).astype(np.int8)


def _given_splits(
    split: Sequence[str], groups: Sequence[str] | None, count: int
) -> NDArray[np.int8]:
    values = [str(each) for each in split]
    if len(values) != count:
        raise UserError(
            f"found {counted(len(values), 'entry', 'entries')} of split for "
            f"{counted(count, 'image')}; give one each"
        )
    unknown = next((each for each in values if each.casefold() not in SPLIT_OF), None)
    if unknown is not None:
        raise UserError(f"split: {unknown!r} is no split{nearest(unknown, SPLIT_OF)}")
    problems = Problems()
    parts = split_by_column(values, groups, range(count), problems)
    if problems or parts is None:
        raise UserError(f"split: {'; '.join(f'{p.title}: {p.kind.advice}' for p in problems)}")
    return parts
