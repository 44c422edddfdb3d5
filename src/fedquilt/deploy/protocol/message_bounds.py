"""Bounds on what a message may look like, checked before anything is built from it.

A message comes from a stranger: deep nesting would exhaust the stack, many names the memory, and a
number that is not finite could not be written into a log or sent back.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any, NoReturn

from fedquilt.core.tree import SEPARATOR

MAX_HEADER_BYTES = 2**20  # of the facts
MAX_NAMES_BYTES = 2**25  # of the table of tensors, which safetensors begins with
MAX_NESTING = 12  # of JSON in the facts
MAX_DEPTH = 16  # names in the path of a tensor
MAX_NAMES = 100_000
MAX_PATH = 1_000  # characters
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")


class BadMessage(ValueError):
    """Raised for bytes that are not a valid message."""


def parse_facts(text: bytes) -> Any:
    """Return JSON from a header, or raise BadMessage: it may be deep, or hold NaN."""
    if nesting(text) > MAX_NESTING:
        raise BadMessage(f"the header is nested more than {MAX_NESTING} levels deep")
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise BadMessage(f"the header is not JSON: {_short(error)}") from error


def nesting(text: bytes) -> int:
    """Return how deep the brackets of JSON are nested, without parsing it."""
    deepest = depth = 0
    for bracket in _BRACKET.findall(_STRING.sub(b"", text)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def check_table(content: memoryview) -> None:
    """Raise BadMessage unless safetensors can be parsed within bounds and make a tree."""
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > min(MAX_NAMES_BYTES, len(content) - 8):
        raise BadMessage("the table of tensors is cut short, or too large")
    text = bytes(content[8 : 8 + length])
    if nesting(text) > 3:  # tensors, one tensor's facts, its shape
        raise BadMessage("the table of tensors is nested too deeply")
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadMessage(f"the table of tensors is not JSON: {_short(error)}") from error
    if not isinstance(table, dict):
        raise BadMessage("the table of tensors is not a table")
    check_paths(table)


def check_paths(paths: Iterable[object]) -> None:
    """Raise BadMessage unless these paths can be the leaves of one tree."""
    parents: set[str] = set()
    leaves: set[str] = set()
    for path in paths:
        if not isinstance(path, str) or len(path) > MAX_PATH:
            raise BadMessage(f"the name of a tensor is not text of at most {MAX_PATH} characters")
        names = path.split(SEPARATOR)
        if len(names) > MAX_DEPTH:
            raise BadMessage(f"the name of a tensor is more than {MAX_DEPTH} levels deep")
        if path and not all(names):
            raise BadMessage("the name of a tensor has an empty part")
        leaves.add(path)
        parents.update(SEPARATOR.join(names[:count]) for count in range(1, len(names)))
        if len(leaves) > MAX_NAMES:
            raise BadMessage(f"the message has more than {MAX_NAMES:,} tensors")
    if leaves & parents or ("" in leaves and len(leaves) > 1):
        raise BadMessage("a tensor is named below another tensor")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")


def _short(error: Exception) -> str:
    return str(error)[:100]
