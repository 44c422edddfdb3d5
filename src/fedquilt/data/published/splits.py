"""Random parts of published data sets: by patient as one should, or by image as papers did."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedquilt.core.errors import UserError
from fedquilt.core.seeding import seed_for
from fedquilt.data.published.image_table import ImageTable
from fedquilt.data.splits import draw_split

log = logging.getLogger(__name__)


def draw_by_group(table: ImageTable, test_share: float, seed: int) -> NDArray[np.bool_]:
    """Whole patients, so that every class has about ``test_share`` of its positives in the test."""
    groups: Sequence[str] = table.groups or ()
    if len(set(groups)) < 2:
        raise UserError(
            f"{len(set(groups))} patients cannot be split into a train and a test part; at least "
            "two are needed"
        )
    positives = table.labels if table.known is None else table.labels * table.known
    return draw_split(groups, positives.astype(np.int64), test_share, seed)


def draw_by_image(table: ImageTable, test_share: float, seed: int) -> NDArray[np.bool_]:
    """A plain shuffle of the images in the order of their label file."""
    is_test = shuffled_share(len(table), test_share, np.random.RandomState(seed))
    if table.groups is not None:
        test = {group for group, side in zip(table.groups, is_test) if side}
        shared = test & {group for group, side in zip(table.groups, is_test) if not side}
        if shared:
            log.warning(
                "split by image: %s patients or lesions are in both parts; the test is too easy",
                f"{len(shared):,}",
            )
    return is_test


def left_out(is_test: NDArray[np.bool_], validation_share: float, seed: int) -> NDArray[np.bool_]:
    """Images, not of the test part, that a paper kept for validation and nobody trains on."""
    rest = np.flatnonzero(~is_test)
    random = np.random.RandomState(seed_for("validation", seed) % 2**32)
    chosen = np.zeros(len(is_test), bool)
    chosen[rest[shuffled_share(len(rest), validation_share, random)]] = True
    return chosen


def shuffled_share(count: int, share: float, random: np.random.RandomState) -> NDArray[np.bool_]:
    """``share`` of ``count`` rows, rounded up: the rows scikit-learn's ``train_test_split`` takes.

    NumPy promises to never change this generator's numbers.
    """
    chosen = np.zeros(count, bool)
    chosen[random.permutation(count)[: math.ceil(share * count)]] = True
    return chosen
