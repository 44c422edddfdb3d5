"""fedquilt: federated multi-label learning when every site annotates only part of the labels."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedquilt.version import VERSION

if TYPE_CHECKING:
    from fedquilt.engines.engine_choice import EngineChoice
    from fedquilt.finished_run import Run, read_run
    from fedquilt.pictured_run import run
    from fedquilt.recipe import Recipe, read_recipe, recipe_from

__version__ = VERSION
__all__ = ["EngineChoice", "Recipe", "Run", "read_recipe", "read_run", "recipe_from", "run"]

_HOMES = {
    "run": "fedquilt.pictured_run",
    "EngineChoice": "fedquilt.engines.engine_choice",
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
