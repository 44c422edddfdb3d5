"""Random splits of published data sets: by patient, as recommended, or by image, as in papers."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedquilt.core.errors import UserError
from fedquilt.core.seeding import seed_for
from fedquilt.core.wording import counted
from fedquilt.data.published.image_table import ImageTable
from fedquilt.data.splits import draw_split

log = logging.getLogger(__name__)


def draw_by_group(table: ImageTable, test_share: float, seed: int) -> NDArray[np.bool_]:
    """Draw whole patients for the test split, stratified by the positives of each class."""
    groups: Sequence[str] = table.groups or ()
    if len(set(groups)) < 2:
        raise UserError(
            f"{counted(len(set(groups)), 'patient')} cannot be split into train and test; at least "
            "two are needed"
        )
    positives = table.labels if table.known is None else table.labels * table.known
    return draw_split(groups, positives.astype(np.int64), test_share, seed)


def draw_by_image(table: ImageTable, test_share: float, seed: int) -> NDArray[np.bool_]:
    """Draw single images for the test split; warn if patients are then in both splits."""
    is_test = shuffled_share(len(table), test_share, np.random.RandomState(seed))
    if table.groups is not None:
        test = {group for group, in_test in zip(table.groups, is_test) if in_test}
        shared = test & {group for group, in_test in zip(table.groups, is_test) if not in_test}
        if shared:
            log.warning(
                "split by image: %s patients or lesions are in both splits; the test is too easy",
                f"{len(shared):,}",
            )
    return is_test


def draw_left_out(
    is_test: NDArray[np.bool_], validation_share: float, seed: int
) -> NDArray[np.bool_]:
    """Draw images outside the test split that are left out, as papers do for validation."""
    rest = np.flatnonzero(~is_test)
    random = np.random.RandomState(seed_for("validation", seed) % 2**32)
    chosen = np.zeros(len(is_test), bool)
    chosen[rest[shuffled_share(len(rest), validation_share, random)]] = True
    return chosen


def shuffled_share(count: int, share: float, random: np.random.RandomState) -> NDArray[np.bool_]:
    """(count,) bool: a random ``share``, rounded up; the same as scikit-learn's train_test_split.

    NumPy guarantees that this generator's numbers never change.
    """
    chosen = np.zeros(count, bool)
    chosen[random.permutation(count)[: math.ceil(share * count)]] = True
    return chosen
