"""Tables of published papers, one file per paper; ``TABLES`` is their registry.

An entry is a function ``(data, rounds) -> PublishedTable``. None of these files imports torch,
which keeps listing fast.
"""

from __future__ import annotations

from fedquilt.core.registry import find
from fedquilt.recipes.papers.table import PublishedTable

TABLES = {
    "fedmlp/table1": "fedquilt.recipes.papers.fedmlp:table1",
    "fedlsm/table1": "fedquilt.recipes.papers.fedlsm:table1",
    "fedlsm/table2": "fedquilt.recipes.papers.fedlsm:table2",
    "fednca-ml/table1": "fedquilt.recipes.papers.fednca_ml:table1",
    "fednca-ml/ablation": "fedquilt.recipes.papers.fednca_ml:ablation",
}


def find_table(name: str, data: str | None = None, rounds: int | None = None) -> PublishedTable:
    """Return a table for a data choice (default: the first), with stages scaled to ``rounds``."""
    table: PublishedTable = find("table", TABLES, name)(data, rounds)
    return table
