"""Where a name is defined, followed through the import statements of source files.

Nothing is imported, so a file that needs torch can be read in a moment.
"""

from __future__ import annotations

import ast
import io
import tokenize
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec, resolve_name
from pathlib import Path


@dataclass(frozen=True)
class ModuleSource:
    name: str
    is_package: bool
    tree: ast.Module
    comments: dict[int, str]  # by line
    comment_lines: frozenset[int]  # those that hold a comment and nothing else


@dataclass(frozen=True)
class ClassDefinition:
    module: ModuleSource
    node: ast.ClassDef


@dataclass(frozen=True)
class AliasDefinition:
    """A name that stands for an expression, such as ``Rounding = Literal["floor", "ceil"]``."""

    meaning: ast.expr


Definition = ClassDefinition | AliasDefinition


def find_definition(module_name: str, name: str) -> Definition | None:
    """Imports are followed within the module's own top package and into fedquilt."""
    module = read_module(module_name)
    if module is None:
        return None
    for statement in module.tree.body:
        if isinstance(statement, ast.ClassDef) and statement.name == name:
            return ClassDefinition(module, statement)
        if isinstance(statement, ast.Assign) and _is_name(statement.targets[0], name):
            return AliasDefinition(statement.value)
        if isinstance(statement, ast.AnnAssign) and _is_name(statement.target, name):
            return AliasDefinition(statement.value) if statement.value is not None else None
        if isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                if (alias.asname or alias.name) == name:
                    return _find_imported(module, statement, alias.name)
    return None


def _is_name(target: ast.expr, name: str) -> bool:
    return isinstance(target, ast.Name) and target.id == name


def _find_imported(module: ModuleSource, statement: ast.ImportFrom, name: str) -> Definition | None:
    package = module.name if module.is_package else module.name.rpartition(".")[0]
    source = statement.module or ""
    if statement.level:
        source = resolve_name("." * statement.level + source, package)
    is_followed = _top(source) in (_top(module.name), "fedquilt")
    return find_definition(source, name) if is_followed else None


def _top(module_name: str) -> str:
    return module_name.partition(".")[0]


@lru_cache(maxsize=256)
def read_module(name: str) -> ModuleSource | None:
    path = _path(name)
    if path is None:
        return None
    text = path.read_text(encoding="utf-8")
    found = [
        token
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    ]
    return ModuleSource(
        name=name,
        is_package=path.name == "__init__.py",
        tree=ast.parse(text),
        comments={token.start[0]: token.string.lstrip("# ") for token in found},
        comment_lines=frozenset(t.start[0] for t in found if t.line.lstrip().startswith("#")),
    )


def _path(name: str) -> Path | None:
    """The module's file. Only the top package is asked for: asking for more imports parents."""
    top, *inner = name.split(".")
    spec = find_spec(top)
    if spec is None:
        return None
    candidates = [Path(spec.origin)] if spec.origin and not inner else []
    for root in spec.submodule_search_locations or ():
        place = Path(root, *inner)
        candidates += [place.with_name(f"{place.name}.py"), place / "__init__.py"]
    return next((path for path in candidates if path.suffix == ".py" and path.is_file()), None)
