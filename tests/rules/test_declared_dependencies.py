"""Every package that the source imports is declared, and every declared one is imported."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "fedquilt"

IMPORTED_AS = {"pillow": "PIL", "scikit-learn": "sklearn"}  # where the names differ
# Folders and files whose imports an extra may bring.
EXTRAS_OF = {
    "deploy": ("deploy",),
    "data/images/dicom.py": ("dicom",),
    "data/sources/rsna_ich": ("dicom",),
    "runs/export": ("onnx",),
    "models/lora.py": ("lora",),
    "runs/sweep/optuna_search.py": ("optuna",),
    "reports/trackers.py": ("mlflow", "wandb"),  # tensorboard is imported by torch
}


def declared(requirements: list[str]) -> set[str]:
    names = (re.match(r"[\w.-]+", each)[0].lower() for each in requirements)
    return {IMPORTED_AS.get(name, name) for name in names}


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module]
        else:
            continue
        yield from (name.partition(".")[0] for name in names)


def third_party() -> dict[str, set[str]]:
    """The packages that each file imports, by its path below the package."""
    ours = {*sys.stdlib_module_names, "fedquilt"}
    return {
        str(path.relative_to(PACKAGE)): set(imported(path)) - ours
        for path in sorted(PACKAGE.rglob("*.py"))
    }


FILES = third_party()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CORE = declared(PROJECT["dependencies"])
EXTRAS = {
    name: declared(requirements) for name, requirements in PROJECT["optional-dependencies"].items()
}


def may_import(file: str) -> set[str]:
    extras = [found for place, found in EXTRAS_OF.items() if f"{file}/".startswith(f"{place}/")]
    return CORE.union(*(EXTRAS[extra] for found in extras for extra in found))


def test_every_import_is_declared_in_the_core_or_in_its_folders_extra():
    missing = {file: names - may_import(file) for file, names in FILES.items()}
    assert not {file: names for file, names in missing.items() if names}


def test_every_dependency_of_the_core_is_imported():
    assert set().union(*FILES.values()) >= CORE


def test_every_package_of_an_extra_is_imported_where_it_belongs():
    for extra in {extra for found in EXTRAS_OF.values() for extra in found}:
        files = [file for file in FILES if EXTRAS[extra] <= may_import(file)]
        assert set().union(*(FILES[file] for file in files)) >= EXTRAS[extra]


def test_every_package_is_constrained():
    """Without a line, `make setup` and its kin would take whatever was published last."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    constrained = declared([line for line in lines if not line.startswith("#")])
    plain = {name.replace("_", "-") for name in constrained}
    for name in CORE.union(*EXTRAS.values()) - {"fedquilt"}:
        assert name.replace("_", "-") in plain, name
    assert not any("/" in line for line in lines)  # no registry, no path


def test_requirements_are_read_as_names_to_import():
    assert declared(["torch>=2.10", "scikit-learn>=1.5", "fedquilt[dicom]"]) == {
        *("torch", "sklearn", "fedquilt")
    }
    assert may_import("data/images/dicom.py") - CORE == {"pydicom"}
    assert may_import("data/images/decoding.py") == CORE
