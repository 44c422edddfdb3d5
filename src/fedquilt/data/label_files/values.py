"""Accepted spellings of label cells, and their meaning.

=====================================  =============================================
``1``, ``1.0``, ``yes``, ``true``      the finding is present
``0``, ``0.0``, ``no``, ``false``      the finding is absent
``-1``, ``-1.0``                       uncertain: see ``Uncertain``
blank, ``nan``, ``na``, ``n/a``,       not annotated, which is not the same as absent
``none``, ``null``
=====================================  =============================================

Case and surrounding spaces do not matter. Anything else is a problem.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Codes: TypeAlias = NDArray[np.int8]
# What an uncertain entry becomes: not annotated, present, or absent.
Uncertain: TypeAlias = Literal["ignore", "positive", "negative"]

POSITIVE, NEGATIVE, UNCERTAIN, BLANK, INVALID = 1, 0, -1, -2, -3

PLAIN = {"1": POSITIVE, "0": NEGATIVE, "": BLANK}
SPELLINGS = PLAIN | {
    **dict.fromkeys(("1.0", "yes", "true"), POSITIVE),
    **dict.fromkeys(("0.0", "no", "false"), NEGATIVE),
    **dict.fromkeys(("-1", "-1.0"), UNCERTAIN),
    **dict.fromkeys(("nan", "na", "n/a", "none", "null"), BLANK),
}
MEANINGS = {POSITIVE: "1", NEGATIVE: "0", UNCERTAIN: "uncertain", BLANK: "not annotated"}
NUMBERS = {"1.0", "0.0"}  # read without a notice


def read_codes(cells: Iterable[str]) -> tuple[Codes, Counter[str]]:
    """One code per cell, and the count of each spelling that is not a plain number."""
    words: Counter[str] = Counter()

    def code_of(cell: str) -> int:
        code = PLAIN.get(cell)
        if code is not None:
            return code
        word = cell.strip().casefold()
        code = SPELLINGS.get(word, INVALID)
        if code != INVALID and word not in PLAIN and word not in NUMBERS:
            words[word] += 1
        return code

    return np.fromiter((code_of(cell) for cell in cells), dtype=np.int8), words


def resolve_uncertain(
    codes: Codes, uncertain: Uncertain
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """``(labels, known)`` after applying the policy for uncertain entries to valid codes."""
    replacement = {"ignore": BLANK, "positive": POSITIVE, "negative": NEGATIVE}[uncertain]
    resolved = np.where(codes == UNCERTAIN, np.int8(replacement), codes)
    return (resolved == POSITIVE).astype(np.uint8), resolved != BLANK


def describe_words(words: Counter[str], uncertain: Uncertain) -> list[str]:
    """One notice for each spelling that is not a plain number."""
    policy = {"ignore": "not annotated", "positive": "1", "negative": "0"}[uncertain]
    return [
        f"{count:,} label cells {word!r} were read as "
        + (
            f"uncertain and count as {policy}"
            if SPELLINGS[word] == UNCERTAIN
            else MEANINGS[SPELLINGS[word]]
        )
        for word, count in sorted(words.items())
    ]
