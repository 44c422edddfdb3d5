"""How names and numbers are written in a report; a name can hold anything."""

from __future__ import annotations

import re
from typing import Any

from fedquilt.reports.style import UNDEFINED

NAMELESS = "(no name)"
# Control characters (ANSI escapes among them), line separators and marks that turn the direction
# of text around.
_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]#!|~$]|:(?=//))")
REPLACEMENT = "\ufffd"


def visible(text: str) -> str:
    """Return the text with every character that could hide or move others replaced by U+FFFD."""
    return _HIDDEN.sub(REPLACEMENT, text)


def finalize(value: Any) -> Any:
    """Make every printed value safe to read; jinja2 escapes the markup after this."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return visible(value)
    return "" if value is None else value


def for_markdown(value: Any) -> Any:
    """Make a printed value text in Markdown too: none of its characters is markup."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return _MARKDOWN.sub(r"\\\1", visible(value))
    return finalize(value)


def named(name: str) -> str:
    return name if name.strip() else NAMELESS


def percent(value: float | None, digits: int = 1) -> str:
    return UNDEFINED if value is None else f"{100 * value:.{digits}f}"


def number(value: float | None, digits: int = 2) -> str:
    return UNDEFINED if value is None else f"{value:.{digits}f}"


def count(value: float | None) -> str:
    return UNDEFINED if value is None else f"{int(value):,}"


def size(byte_count: int | None) -> str:
    """Format a size with a unit of 1,000 bytes: 812 B, 4.5 kB, 44.7 MB."""
    if byte_count is None:
        return UNDEFINED
    if byte_count < 1000:
        return f"{byte_count} B"
    for unit, power in (("kB", 1e3), ("MB", 1e6)):
        if byte_count < 1000 * power:
            return f"{byte_count / power:.1f} {unit}"
    return f"{byte_count / 1e9:.1f} GB"


def listed(names: list[str], most: int = 6) -> str:
    """Join names with commas and "and"; of more than ``most``, the rest is only counted."""
    shown = [named(name) for name in names]
    if len(shown) > most:
        return f"{', '.join(shown[:most])} and {len(shown) - most} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)
