"""Checks of settings that several sources share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from fedquilt.core.errors import UserError, nearest
from fedquilt.data.images.decoding import Fit


def check_one_of(field: str, value: str, choices: Sequence[str]) -> None:
    """Raise a ``UserError`` if ``value`` is not one of ``choices``."""
    if value not in choices:
        raise UserError(f"{field} is {value!r}{nearest(str(value), choices)}")


def check_image_settings(size: int, fit: Fit = "squash") -> None:
    """Raise a ``UserError`` for a size below 1 or an unknown fit."""
    if size < 1:
        raise UserError(f"size is {size}; expected a number of pixels, at least 1")
    check_one_of("fit", fit, get_args(Fit))


def check_shares(test_share: float, validation_share: float = 0.0) -> None:
    """Raise a ``UserError`` for shares that are not possible in a random split."""
    if not 0 < test_share < 1:
        raise UserError(
            f"test_share is {test_share}; expected a share between 0 and 1, such as 0.3"
        )
    if not 0 <= validation_share < 1:
        raise UserError(f"validation_share is {validation_share}; expected 0 or a share below 1")
