"""Numbers with their nouns."""

from __future__ import annotations

import pytest

from fedquilt.core.wording import counted


@pytest.mark.parametrize(
    ("amount", "nouns", "expected"),
    [
        (0, ["image"], "0 images"),
        (1, ["image"], "1 image"),
        (1200, ["image"], "1,200 images"),
        (1, ["class", "classes"], "1 class"),
        (2, ["class", "classes"], "2 classes"),
        (1, ["patient has", "patients have"], "1 patient has"),
    ],
)
def test_one_and_many(amount: int, nouns: list[str], expected: str) -> None:
    assert counted(amount, *nouns) == expected
