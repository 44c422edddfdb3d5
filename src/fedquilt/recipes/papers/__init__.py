"""The papers' tables, one file a paper: ``TABLES`` is the one table of their names.

An entry is a function ``(data, rounds) -> PublishedTable``. None of these files imports torch, so
that a list of tables is there in a moment.
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
    """A table on the data of that choice, or on its default; stages are scaled to ``rounds``."""
    table: PublishedTable = find("table", TABLES, name)(data, rounds)
    return table
