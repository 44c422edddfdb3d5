"""Tables of published papers, one file per paper; ``TABLES`` is their registry.

An entry is a function ``(data, rounds) -> PublishedTable``. None of these files imports torch,
which keeps listing fast.
"""

from __future__ import annotations

from fedquilt.core.registry import find
from fedquilt.recipes.papers.table import PublishedTable

TABLES = {
    "fedmlp/table1": "fedquilt.recipes.papers.fedmlp:table1",
    "fedmlp/table2": "fedquilt.recipes.papers.fedmlp:table2",
    "fedmlp/table3": "fedquilt.recipes.papers.fedmlp:table3",
    "fedlsm/table1": "fedquilt.recipes.papers.fedlsm:table1",
    "fedlsm/table2": "fedquilt.recipes.papers.fedlsm:table2",
    "fedlsm/table3": "fedquilt.recipes.papers.fedlsm:table3",
    "fedlgt/table1": "fedquilt.recipes.papers.fedlgt:table1",
    "fedlgt/table2": "fedquilt.recipes.papers.fedlgt:table2",
    "fedlgt/table3": "fedquilt.recipes.papers.fedlgt:table3",
    "fedlgt/table4": "fedquilt.recipes.papers.fedlgt:table4",
    "fednca-ml/table1": "fedquilt.recipes.papers.fednca_ml:table1",
    "fednca-ml/table2": "fedquilt.recipes.papers.fednca_ml:table2",
    "fednca-ml/table3": "fedquilt.recipes.papers.fednca_ml:table3",
    "fednca-ml/table4": "fedquilt.recipes.papers.fednca_ml:table4",
    "fednca-ml/table5": "fedquilt.recipes.papers.fednca_ml:table5",
    "fednca-ml/table6": "fedquilt.recipes.papers.fednca_ml:table6",
    "fednca-ml/table7": "fedquilt.recipes.papers.fednca_ml:table7",
    "fednca-ml/table8": "fedquilt.recipes.papers.fednca_ml:table8",
}


def find_table(name: str, data: str | None = None, rounds: int | None = None) -> PublishedTable:
    """Return a table for a data choice (default: the first), with stages scaled to ``rounds``."""
    table: PublishedTable = find("table", TABLES, name)(data, rounds)
    return table
