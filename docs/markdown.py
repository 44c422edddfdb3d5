"""Markdown for the pages that are written from the code: tables, paragraphs, lists."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

MARK = "<!-- Written by `make docs` from the code. Change the code, not this page. -->"
WIDTH = 100  # of lines of prose
AS_WORDS: Mapping[str, Any] = {"break_long_words": False, "break_on_hyphens": False}


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A bar would end a cell, also within backticks."""
    body = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    lines = [columns, ["---"] * len(columns), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, **AS_WORDS)


def bullets(texts: Iterable[str]) -> str:
    filled = (
        textwrap.fill(f"- {each}", WIDTH, subsequent_indent="  ", **AS_WORDS) for each in texts
    )
    return "\n".join(filled)


def prose(docstring: str) -> str:
    """A docstring's reStructuredText as Markdown."""
    return re.sub(r":\w+:(?=`)", "", docstring).replace("``", "`").strip()
