"""Registries map names to import paths; an entry is imported on first use."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from fedquilt.core.errors import UserError, nearest
from fedquilt.core.own_code import is_own, recall


def canonical(name: str, table: Mapping[str, str]) -> str:
    """The name as in the table if only case, spaces or underscores differ, such as ``FedMLP``."""
    if name in table:
        return name
    plain = "-".join(name.replace("_", " ").split()).casefold()
    return plain if plain in table else name


def find(kind: str, table: Mapping[str, str], name: str) -> Any:
    """Import and return the entry ``name``; entries look like ``"package.module:Object"``.

    A name of a user's own code is not imported, see ``core/own_code.py``.
    """
    if is_own(name):
        return recall(kind, name)
    name = canonical(name, table)
    if name not in table:
        raise UserError(f"unknown {kind} {name!r}{nearest(name, table)}")
    module, _, attribute = table[name].partition(":")
    return getattr(import_module(module), attribute)
