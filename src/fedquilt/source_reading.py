"""Dataclasses read from their source text: docstrings, fields and the comments behind them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from fedquilt.source_lookup import (
    AliasDefinition,
    ClassDefinition,
    ModuleSource,
    find_definition,
)


@dataclass(frozen=True)
class Field:
    """One setting; ``fields`` are those of the dataclass it holds, if it holds one."""

    name: str
    type: str
    default: str | None  # as it is written; None: it must be given
    comment: str
    fields: tuple[Field, ...] = ()

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
    docstring: str
    module_docstring: str
    fields: tuple[Field, ...]  # also those of the parents, in the order a dataclass has them
    constants: dict[str, Any]  # class variables that are written out, such as ``variants``


def read_class(place: str) -> ClassSource:
    """Read ``"package.module:Class"``; LookupError if there is no such source."""
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
    """A field that a child declares again keeps the place its parent gave it."""
    fields: dict[str, Field] = {}
    for each in reversed(list(_lineage(found))):
        fields |= {field.name: field for field in _own_fields(each)}
    return tuple(fields.values())


def _lineage(found: ClassDefinition) -> Iterator[ClassDefinition]:
    """The class and those of its parents whose source can be followed, youngest first."""
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
                continue  # computed, so it cannot be shown
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
    """Spell out a type that has a name: an alias as what it stands for, settings as fields."""
    if not isinstance(annotation, ast.Name):
        return field
    meant = find_definition(module.name, annotation.id)
    if isinstance(meant, AliasDefinition):
        return replace(field, type=ast.unparse(meant.meaning))
    return field if meant is None else replace(field, fields=_all_fields(meant))


def _default(value: ast.expr | None) -> str | None:
    """As written; of ``field(default_factory=lambda: X)`` the X."""
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
    """What stands behind the field, and on the comment lines right below it."""
    last = statement.end_lineno or statement.lineno
    while last + 1 in module.comment_lines:
        last += 1
    lines = range(statement.lineno, last + 1)
    return " ".join(module.comments[line] for line in lines if line in module.comments)
