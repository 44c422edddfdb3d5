"""Nothing here runs code that lies in a file: no pickle and no eval, by reading the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src", "tests", "benchmarks")

PICKLERS = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
LOADERS = {"torch": {"load", "save"}, "yaml": {"load", "unsafe_load", "full_load"}}
BUILTINS = {"eval", "exec", "compile", "__import__"}


def dangers(text: str) -> list[str]:
    """What in a source text could run code from a file, with its line."""
    return [f"line {line}: {what}" for line, what in sorted(_found(ast.parse(text)))]


def _found(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in PICKLERS:
                    yield node.lineno, f"import {alias.name}"
        elif isinstance(node, ast.ImportFrom):
            yield from _from_import(node)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr in LOADERS.get(node.value.id, set()):
                yield node.lineno, f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in BUILTINS:
                yield node.lineno, f"{node.func.id}()"
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            value = ast.unparse(node.value)
            if value != "False":
                yield node.value.lineno, f"allow_pickle={value}"


def _from_import(node: ast.ImportFrom) -> Iterator[tuple[int, str]]:
    module = node.module or ""
    for alias in node.names:
        if module.partition(".")[0] in PICKLERS or alias.name in LOADERS.get(module, set()):
            yield node.lineno, f"from {module} import {alias.name}"


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_file_can_run_code(folder: str):
    found = {
        str(path.relative_to(ROOT)): dangers(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / folder).rglob("*.py"))
    }
    assert found, f"no source in {folder}"
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "import os, dill",
        "from pickle import loads",
        "from torch import load",
        "import torch\ndef f(p): return torch.load(p, weights_only=True)",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=flag)",
        "eval(text)",
        "def f():\n    exec(text)",
        "yaml.load(text)",
    ],
)
def test_danger_is_found(text: str):
    assert len(dangers(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "network.eval()",  # no Python, but a mode of torch's modules
        "np.load(path, allow_pickle=False)",
        "re.compile(pattern)",
        "from safetensors.torch import load",
        "hint = 'torch.load(path)'",
        "yaml.safe_load(text)",
    ],
)
def test_what_is_safe_is_left_alone(text: str):
    assert dangers(text) == []
