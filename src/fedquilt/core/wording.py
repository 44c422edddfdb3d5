"""counted(): a number with its noun, as in every message, report and table."""

from __future__ import annotations


def counted(amount: int, one: str, many: str | None = None) -> str:
    """Return "1 site", "5 sites", "1,200 images"; ``many`` where the plural is not ``one`` + s."""
    return f"{amount:,} {one if amount == 1 else many or one + 's'}"
