"""NaN and None: JSON has no NaN, so what is undefined is stored as null."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan, nan
from typing import Any


def nan_to_none(value: Any) -> Any:
    """Replace NaN in nested mappings and sequences, which become dicts and lists."""
    if isinstance(value, float) and isnan(value):
        return None
    return _inside(value, nan_to_none)


def none_to_nan(value: Any) -> Any:
    """The inverse of :func:`nan_to_none`, for values where None can only mean undefined."""
    return nan if value is None else _inside(value, none_to_nan)


def _inside(value: Any, replace: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: replace(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [replace(item) for item in value]
    return value
