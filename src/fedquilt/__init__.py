"""fedquilt: federated multi-label learning when every site has annotated only part of the labels."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedquilt.experiment import run
    from fedquilt.finished_run import Run, read_run
    from fedquilt.recipe import Recipe, read_recipe, recipe_from

__version__ = "0.1.0"
__all__ = ["Recipe", "Run", "read_recipe", "read_run", "recipe_from", "run"]

_HOMES = {
    "run": "fedquilt.experiment",
    "Run": "fedquilt.finished_run",
    "read_run": "fedquilt.finished_run",
    "Recipe": "fedquilt.recipe",
    "read_recipe": "fedquilt.recipe",
    "recipe_from": "fedquilt.recipe",
}


def __getattr__(name: str) -> Any:
    """Import on first use: torch takes seconds, and ``fedquilt list`` must answer at once."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fedquilt' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
