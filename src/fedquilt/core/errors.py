"""Errors that a user can fix; the command line prints them without a traceback."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(ValueError):
    """Says what was found, what was expected and what to do."""


def near_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most alike, whatever its case; None if none is close."""
    by_form = {each.casefold(): each for each in sorted(known)}
    close = get_close_matches(name.casefold(), by_form, n=1, cutoff=0.5)
    return by_form[close[0]] if close else None


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for a close match, otherwise the list of known names."""
    names = sorted(known)
    close = near_name(name, names)
    return f"; did you mean {close!r}?" if close else f"; known: {', '.join(names) or 'none'}"
