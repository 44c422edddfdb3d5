"""The settings of a small recipe."""

from __future__ import annotations

from typing import Any


def settings(**changes: Any) -> dict[str, Any]:
    return {
        "data": {"name": "digits-mosaic"},
        "partition": {"name": "iid", "clients": 3},
        "annotation": {"name": "missing", "missing": 2},
        "method": {"name": "fedavg"},
    } | changes
