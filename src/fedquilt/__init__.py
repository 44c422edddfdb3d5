"""fedquilt: federated multi-label learning when every site annotates only part of the labels."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedquilt.core.errors import nearest
from fedquilt.core.version import VERSION

if TYPE_CHECKING:
    from fedquilt.core.errors import UserError
    from fedquilt.core.payload import Gather, Mean, PerClient, Sum, Update
    from fedquilt.core.totals import Totals
    from fedquilt.core.tree import Weights
    from fedquilt.data.batches import Batch, Pool
    from fedquilt.data.sources.given.arrays import from_arrays, from_dataset
    from fedquilt.data.sources.given.files import from_files
    from fedquilt.engines.options import EngineOptions
    from fedquilt.methods.fedavg import FedAvg
    from fedquilt.recipes.recipe import Recipe, read_recipe, recipe_from
    from fedquilt.reports.run_with_report import run
    from fedquilt.runs.finished_run import Run, read_run
    from fedquilt.training.averaging import WeightedAveraging
    from fedquilt.training.local_training import LocalTraining
    from fedquilt.training.method import Local, Method, Stage, State
    from fedquilt.training.parts import MeanPart, SumPart
    from fedquilt.training.task import Task

__version__ = VERSION
__all__ = [
    "Batch",
    "EngineOptions",
    "FedAvg",
    "Gather",
    "Local",
    "LocalTraining",
    "Mean",
    "MeanPart",
    "Method",
    "PerClient",
    "Pool",
    "Recipe",
    "Run",
    "Stage",
    "State",
    "Sum",
    "SumPart",
    "Task",
    "Totals",
    "Update",
    "UserError",
    "WeightedAveraging",
    "Weights",
    "from_arrays",
    "from_dataset",
    "from_files",
    "read_recipe",
    "read_run",
    "recipe_from",
    "run",
]

# To give data, to run and read experiments, then to write a method.
_HOMES = {
    "from_arrays": "data.sources.given.arrays",
    "from_dataset": "data.sources.given.arrays",
    "from_files": "data.sources.given.files",
    "run": "reports.run_with_report",
    "read_run": "runs.finished_run",
    "Run": "runs.finished_run",
    "Recipe": "recipes.recipe",
    "read_recipe": "recipes.recipe",
    "recipe_from": "recipes.recipe",
    "EngineOptions": "engines.options",
    "UserError": "core.errors",
    "Method": "training.method",
    "WeightedAveraging": "training.averaging",
    "FedAvg": "methods.fedavg",
    "Local": "training.method",
    "Stage": "training.method",
    "State": "training.method",
    "Task": "training.task",
    "LocalTraining": "training.local_training",
    "Batch": "data.batches",
    "Pool": "data.batches",
    "Weights": "core.tree",
    "Update": "core.payload",
    "Sum": "core.payload",
    "Mean": "core.payload",
    "Gather": "core.payload",
    "PerClient": "core.payload",
    "MeanPart": "training.parts",
    "SumPart": "training.parts",
    "Totals": "core.totals",
}


def __getattr__(name: str) -> Any:
    """Import on first use: torch takes seconds, and ``fedquilt list`` must answer at once."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fedquilt' has no attribute {name!r}{nearest(name, __all__)}")
    return getattr(import_module(f"fedquilt.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """The public names, imported yet or not."""
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
