"""Parse files that anybody may have written or damaged: JSON, TOML, JSON lines and npz."""

from __future__ import annotations

import json
import tomllib
import zipfile
import zlib
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

MAX_DEPTH = 64  # of tables and lists; settings and results are at most ten levels deep
# Whatever is wrong with an .npz file and the JSON header in it.
UNREADABLE = (
    *(OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, EOFError, MemoryError),
    *(zipfile.BadZipFile, zlib.error),
)


def parse_json(text: str) -> Any:
    """Return the content; raise ValueError, also for what is nested too deeply."""
    return _parsed(json.loads, text)


def parse_toml(text: str) -> dict[str, Any]:
    """Return the content; raise ValueError, also for what is nested too deeply."""
    return _parsed(tomllib.loads, text)


def format_of(suffix: str) -> str:
    """Return the format of settings in a file with this suffix, as it is called in errors."""
    return "JSON" if suffix.lower() == ".json" else "TOML"


def parse_table(text: str, suffix: str) -> dict[str, Any]:
    """Return the table in a text, JSON for the suffix ``.json`` and TOML for any other."""
    content = parse_json(text) if format_of(suffix) == "JSON" else parse_toml(text)
    if not isinstance(content, dict):
        raise ValueError("expected a table of settings")
    return content


def parse_records(text: str, *needed: str) -> list[dict[str, Any]]:
    """Return the tables with these keys, one for each line, up to the first damaged line.

    A killed process may have cut the last line short.
    """
    records = []
    for line in text.splitlines():
        try:
            record = parse_json(line)
        except ValueError:
            break
        if not isinstance(record, dict) or not record.keys() >= set(needed):
            break
        records.append(record)
    return records


def _parsed(parse: Callable[[str], T], text: str) -> T:
    try:
        content = parse(text)
    except RecursionError:
        raise _too_deep() from None
    _check_depth(content)
    return content


def _check_depth(content: Any) -> None:
    """Look level by level: recursion would fail at what is to be refused."""
    level = [content]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> ValueError:
    return ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
