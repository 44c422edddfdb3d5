"""Annotation rules by the name a recipe uses."""

from __future__ import annotations

ANNOTATIONS: dict[str, str] = {
    "full": "fedquilt.data.annotations.rules:Full",
    "identified": "fedquilt.data.annotations.rules:Identified",
    "listed": "fedquilt.data.annotations.rules:Listed",
    "missing": "fedquilt.data.annotations.rules:Missing",
    "recorded": "fedquilt.data.annotations.rules:Recorded",
}
