"""``import fedquilt``: what it offers, and what it does not import yet."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import fedquilt

FOR_USERS = {
    *("run", "read_run", "Run", "Recipe", "read_recipe", "recipe_from", "EngineOptions"),
    "UserError",
}
FOR_AUTHORS_OF_METHODS = {
    *("Method", "Local", "Stage", "Task", "Batch", "Pool", "LocalTraining", "Totals"),
    *("Update", "Sum", "Mean", "Gather", "PerClient", "WeightedAveraging", "MeanPart", "SumPart"),
}


def test_dir_shows_the_public_names_and_no_other():
    shown = {name for name in dir(fedquilt) if not name.startswith("__")}
    assert shown == set(fedquilt.__all__)
    assert shown >= FOR_USERS | FOR_AUTHORS_OF_METHODS
    assert "__version__" in dir(fedquilt)


@pytest.mark.parametrize("name", fedquilt.__all__)
def test_every_name_is_what_its_module_defines(name: str):
    value = getattr(fedquilt, name)
    if inspect.isclass(value) or inspect.isfunction(value):  # the others are names of types
        assert (value.__module__, value.__name__) == (f"fedquilt.{fedquilt._HOMES[name]}", name)


def test_type_checkers_see_the_same_names_in_the_same_modules():
    tree = ast.parse(Path(fedquilt.__file__).read_text(encoding="utf-8"))
    (checked,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: node.module
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == {name: f"fedquilt.{home}" for name, home in fedquilt._HOMES.items()}
    assert sorted(seen) == sorted(fedquilt.__all__)


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(AttributeError, match=r"no attribute 'read_runs'.*'read_run'"):
        _ = fedquilt.read_runs


def test_importing_it_imports_no_slow_package():
    code = "import sys, fedquilt; dir(fedquilt); print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "fedquilt.core.version" in loaded
    slow = {"torch", "numpy", "sklearn", "timm", "matplotlib", "rich", "typer"}
    assert not loaded & slow


def test_the_citation_names_this_version():
    citation = Path(__file__).resolve().parents[2] / "CITATION.cff"
    assert f"version: {fedquilt.__version__}" in citation.read_text("utf-8").splitlines()
