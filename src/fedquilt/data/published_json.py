"""A published JSON file; what is no JSON, or of another shape, is an error with its origin."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedquilt.data.published import Origin


def read_json(
    origin: Origin,
    path: Path,
    kind: type,
    each: Callable[[dict[str, Any]], Any] | None = None,
) -> Any:
    """The document, a ``kind``; ``each`` may make every object smaller as it is read."""
    with origin.reading(path):
        content = path.read_bytes()
    try:
        document = json.loads(content, object_hook=each)
    except ValueError as error:  # bad JSON, or bytes that are no text
        raise origin.wrong(path, f"is not JSON ({error})", "the file as published") from None
    if not isinstance(document, kind):
        found = f"holds a {type(document).__name__}"
        raise origin.wrong(path, found, f"a {kind.__name__} as published")
    return document
