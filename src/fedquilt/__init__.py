"""fedquilt: federated multi-label learning when every site annotates only part of the labels."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedquilt.core.version import VERSION

if TYPE_CHECKING:
    from fedquilt.engines.choice import EngineOptions
    from fedquilt.recipes.recipe import Recipe, read_recipe, recipe_from
    from fedquilt.reports.run_with_report import run
    from fedquilt.runs.finished_run import Run, read_run

__version__ = VERSION
__all__ = ["EngineOptions", "Recipe", "Run", "read_recipe", "read_run", "recipe_from", "run"]

_HOMES = {
    "run": "fedquilt.reports.run_with_report",
    "EngineOptions": "fedquilt.engines.choice",
    "Run": "fedquilt.runs.finished_run",
    "read_run": "fedquilt.runs.finished_run",
    "Recipe": "fedquilt.recipes.recipe",
    "read_recipe": "fedquilt.recipes.recipe",
    "recipe_from": "fedquilt.recipes.recipe",
}


def __getattr__(name: str) -> Any:
    """Import on first use: torch takes seconds, and ``fedquilt list`` must answer at once."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fedquilt' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
