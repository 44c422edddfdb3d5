"""What leaves a client, per method, written down by ``make docs``.

To read it from the methods themselves (``privacy.sent_parts``) takes torch and seconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

FILE = "what_leaves.json"


@cache
def what_leaves() -> Mapping[str, Any]:
    """Return the facts of every shipped method by its name."""
    text = files("fedquilt.recipes").joinpath(FILE).read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found
