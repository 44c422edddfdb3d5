"""Registries map names to import paths; an entry is imported on first use."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from fedquilt.core.errors import UserError, nearest


def find(kind: str, table: Mapping[str, str], name: str) -> Any:
    """Import and return the entry ``name``; entries look like ``"package.module:Object"``."""
    if name not in table:
        raise UserError(f"unknown {kind} {name!r}{nearest(name, table)}")
    module, _, attribute = table[name].partition(":")
    return getattr(import_module(module), attribute)
