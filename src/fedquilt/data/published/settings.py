"""Checks that settings of several sources share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from fedquilt.core.errors import UserError, nearest
from fedquilt.data.images.decoding import Fit


def check_choice(field: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise UserError(f"{field} is {value!r}{nearest(str(value), choices)}")


def check_picture(size: int, fit: Fit = "squash") -> None:
    if size < 1:
        raise UserError(f"size is {size}; expected a number of pixels, at least 1")
    check_choice("fit", fit, get_args(Fit))


def check_shares(test_share: float, validation_share: float = 0.0) -> None:
    if not 0 < test_share < 1:
        raise UserError(
            f"test_share is {test_share}; expected a share between 0 and 1, such as 0.3"
        )
    if not 0 <= validation_share < 1:
        raise UserError(f"validation_share is {validation_share}; expected 0 or a share below 1")
