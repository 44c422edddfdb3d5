"""The rules of who annotates which class, by the name a recipe uses."""

from __future__ import annotations

ANNOTATIONS: dict[str, str] = {
    "full": "fedquilt.data.annotations.full:Full",
    "identified": "fedquilt.data.annotations.identified:Identified",
    "listed": "fedquilt.data.annotations.listed:Listed",
    "missing": "fedquilt.data.annotations.missing:Missing",
    "recorded": "fedquilt.data.annotations.recorded:Recorded",
}
