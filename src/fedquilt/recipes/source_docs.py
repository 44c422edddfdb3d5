"""Read docstrings, fields and field comments of dataclasses from source text, without imports."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec, resolve_name
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Field:
    """One setting of a class."""

    name: str
    type: str
    default: str | None  # as written in the source; None if the setting is required
    comment: str
    fields: tuple[Field, ...] = ()  # if the setting is a dataclass, its fields

    def to_dict(self) -> dict[str, Any]:
        plain = {
            "name": self.name,
            "type": self.type,
            "default": self.default,
            "required": self.default is None,
            "comment": self.comment,
        }
        nested = {"fields": [field.to_dict() for field in self.fields]} if self.fields else {}
        return plain | nested


@dataclass(frozen=True)
class ClassSource:
    """What the source text says about a class."""

    docstring: str
    module_docstring: str
    fields: tuple[Field, ...]  # with those of the parents, in dataclass order
    constants: dict[str, Any]  # class variables with literal values, such as ``variants``


@dataclass(frozen=True)
class ModuleSource:
    """A parsed module."""

    name: str
    is_package: bool
    tree: ast.Module
    comments: dict[int, str]  # by line
    comment_lines: frozenset[int]  # lines with nothing but a comment


@dataclass(frozen=True)
class ClassDefinition:
    """A class statement and its module."""

    module: ModuleSource
    node: ast.ClassDef


@dataclass(frozen=True)
class AliasDefinition:
    """The value of a type alias, such as ``Rounding = Literal["floor", "ceil"]``."""

    meaning: ast.expr


Definition = ClassDefinition | AliasDefinition


def read_class(place: str) -> ClassSource:
    """Read ``"package.module:Class"``; raise LookupError if its source is not found."""
    module_name, _, class_name = place.partition(":")
    found = find_definition(module_name, class_name)
    if not isinstance(found, ClassDefinition):
        raise LookupError(f"no source of a class {place}")
    constants: dict[str, Any] = {}
    for each in reversed(list(_lineage(found))):
        constants |= _constants(each.node)
    return ClassSource(
        docstring=ast.get_docstring(found.node) or "",
        module_docstring=ast.get_docstring(found.module.tree) or "",
        fields=_all_fields(found),
        constants=constants,
    )


def _all_fields(found: ClassDefinition) -> tuple[Field, ...]:
    """Return the fields of the class and its parents; an overridden field keeps its position."""
    fields: dict[str, Field] = {}
    for each in reversed(list(_lineage(found))):
        fields |= {field.name: field for field in _own_fields(each)}
    return tuple(fields.values())


def _lineage(found: ClassDefinition) -> Iterator[ClassDefinition]:
    """Yield the class, then its parents whose source can be found."""
    yield found
    for base in found.node.bases:
        if isinstance(base, ast.Name):
            parent = find_definition(found.module.name, base.id)
            if isinstance(parent, ClassDefinition):
                yield from _lineage(parent)


def _declarations(node: ast.ClassDef, *, class_variables: bool) -> Iterator[ast.AnnAssign]:
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            is_class_variable = ast.unparse(statement.annotation).startswith("ClassVar")
            if is_class_variable == class_variables:
                yield statement


def _constants(node: ast.ClassDef) -> dict[str, Any]:
    found = {}
    for statement in _declarations(node, class_variables=True):
        if statement.value is not None:
            try:
                found[ast.unparse(statement.target)] = ast.literal_eval(statement.value)
            except ValueError:
                continue  # not a literal, so its value is unknown
    return found


def _own_fields(found: ClassDefinition) -> Iterator[Field]:
    for statement in _declarations(found.node, class_variables=False):
        field = Field(
            name=ast.unparse(statement.target),
            type=ast.unparse(statement.annotation),
            default=_default(statement.value),
            comment=_comment(found.module, statement),
        )
        yield _with_meaning(field, found.module, statement.annotation)


def _with_meaning(field: Field, module: ModuleSource, annotation: ast.expr) -> Field:
    """Resolve a named type: replace an alias by its value, add the fields of a dataclass."""
    if not isinstance(annotation, ast.Name):
        return field
    meant = find_definition(module.name, annotation.id)
    if isinstance(meant, AliasDefinition):
        return replace(field, type=ast.unparse(meant.meaning))
    return field if meant is None else replace(field, fields=_all_fields(meant))


def _default(value: ast.expr | None) -> str | None:
    """Return the default as written; for a default factory or ``added(X)``, what it makes."""
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "added":
        return _default(value.args[0])
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "field":
        given = {keyword.arg: keyword.value for keyword in value.keywords}
        factory = given.get("default_factory")
        if factory is None:
            return _default(given.get("default"))
        return ast.unparse(factory.body) if isinstance(factory, ast.Lambda) else _call(factory)
    return None if value is None else ast.unparse(value)


def _call(factory: ast.expr) -> str:
    return f"{ast.unparse(factory)}()"


def _comment(module: ModuleSource, statement: ast.AnnAssign) -> str:
    """Return the comment behind the field and on the comment lines directly below it."""
    last = statement.end_lineno or statement.lineno
    while last + 1 in module.comment_lines:
        last += 1
    lines = range(statement.lineno, last + 1)
    return " ".join(module.comments[line] for line in lines if line in module.comments)


def find_definition(module_name: str, name: str) -> Definition | None:
    """Find a class or alias; follow imports within the same top-level package and fedquilt."""
    module = read_module(module_name)
    if module is None:
        return None
    for statement in _statements(module.tree):
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


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """The module's statements, and those below an ``if``: fedquilt imports its names lazily."""
    for statement in tree.body:
        yield from statement.body if isinstance(statement, ast.If) else [statement]


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
    """Return the module's file; ``find_spec`` on a submodule would import its parents."""
    top, *inner = name.split(".")
    spec = find_spec(top)
    if spec is None:
        return None
    candidates = [Path(spec.origin)] if spec.origin and not inner else []
    for root in spec.submodule_search_locations or ():
        place = Path(root, *inner)
        candidates += [place.with_name(f"{place.name}.py"), place / "__init__.py"]
    return next((path for path in candidates if path.suffix == ".py" and path.is_file()), None)
