"""Convert plain data (TOML, JSON, ``--set``) to frozen dataclasses and back, strictly.

An unknown key is an error that suggests the closest known one. A value must have its field's type.
If a field's type is a key of ``tables``, the value's ``name`` selects an entry of that table.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal

from fedquilt.core.errors import UserError, nearest
from fedquilt.core.own_code import own_name
from fedquilt.core.registry import find

Tables = Mapping[type, tuple[str, Mapping[str, str]]]  # family -> (what to call it, its table)

ADDED = "added"


def added(default: Any) -> Any:
    """Declare a field that older recipes lack: at its default it is not written.

    So recipes that do not use it keep their text and their hash. The default must keep the
    behaviour from before the field existed.
    """
    return dataclasses.field(default=default, metadata={ADDED: True})


def read(kind: Any, value: Any, where: str, tables: Tables) -> Any:
    """Convert ``value`` to ``kind``; errors name ``where``, a dotted path."""
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        return _read_union(kind, value, where, tables)
    if origin is Literal:
        if value is None and "none" in typing.get_args(kind):
            return "none"  # a bare none on the command line
        if not any(type(value) is type(it) and value == it for it in typing.get_args(kind)):
            choices = ", ".join(repr(choice) for choice in typing.get_args(kind))
            raise UserError(f"{where} must be one of {choices}; found {value!r}")
        return value
    if origin is tuple:
        return _read_tuple(kind, value, where, tables)
    if origin is Callable:
        return _read_function(value, where)
    if origin in (dict, Mapping) or origin is typing.get_origin(Mapping[str, str]):
        return _read_mapping(kind, value, where, tables)
    if dataclasses.is_dataclass(kind):
        return _read_dataclass(kind, value, where, tables)
    return _read_scalar(kind, value, where)


def _read_dataclass(kind: Any, value: Any, where: str, tables: Tables) -> Any:
    if isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        raise UserError(f"{where} must be a table of settings, found {value!r}")
    settings = dict(value)
    if kind in tables:
        family, table = tables[kind]
        if "name" not in settings:
            raise UserError(f"{where}.name is missing: which {family}?{nearest('', table)}")
        name = _read_scalar(str, settings.pop("name"), f"{where}.name")
        kind = _entry_of(kind, family, table, name, where)
        settings = _over(_variant(kind, settings.pop("variant", None), where), settings)
        kind = _with_fixed(kind, settings, where)
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for key in settings:
        if key not in fields:
            raise UserError(f"{where} has no field {key!r}{nearest(key, fields)}")
    missing = [
        name
        for name, field in fields.items()
        if name not in settings
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise UserError(f"{where} lacks {', '.join(missing)}")
    return kind(
        **{
            key: read(hints[key], _completed(fields[key], entry, tables), f"{where}.{key}", tables)
            for key, entry in settings.items()
        }
    )


def _entry_of(kind: type, family: str, table: Mapping[str, str], name: str, where: str) -> Any:
    found = find(family, table, name)
    if not (
        isinstance(found, type) and issubclass(found, kind) and dataclasses.is_dataclass(found)
    ):
        raise UserError(
            f"{where}.name: {name!r} must be a dataclass derived from {kind.__name__}, found "
            f"{found!r}"
        )
    return found


def _completed(field: dataclasses.Field[Any], entry: Any, tables: Tables) -> Any:
    """Fill the settings missing from ``entry`` from the field's default, not from its type's.

    A method may change the default training settings. Setting only the learning rate must not
    reset the others.
    """
    default: Any = field.default
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    is_partial = isinstance(entry, Mapping) and dataclasses.is_dataclass(default)
    if not is_partial or isinstance(default, tuple(tables)):  # a name may choose another kind
        return entry
    known = {each.name: getattr(default, each.name) for each in dataclasses.fields(default)}
    return known | dict(entry)


def _variant(kind: Any, name: str | None, where: str) -> dict[str, Any]:
    if name is None:
        return {}
    name = _read_scalar(str, name, f"{where}.variant")
    variants = getattr(kind, "variants", {})
    if name not in variants:
        raise UserError(
            f"{where}.variant: {kind.__name__} has none called {name!r}{nearest(name, variants)}"
        )
    return dict(variants[name])


def _over(variant: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Add what a variant sets and ``settings`` leave out, also within a table such as training."""
    merged = {**variant, **settings}
    for key in variant.keys() & settings.keys():
        if isinstance(variant[key], Mapping) and isinstance(settings[key], Mapping):
            merged[key] = {**variant[key], **settings[key]}
    return merged


def _with_fixed(kind: Any, settings: dict[str, Any], where: str) -> Any:
    """Remove the fixed settings and return the class that has them: ``kind`` or a subclass.

    A fixed setting is not a field: only a subclass changes it, so the class determines its value.
    A subclass is chosen by all of its fixed settings, as a variant or a stored recipe gives them.
    """
    fixed = dict(getattr(kind, "fixed", {}))
    given = {key: settings.pop(key) for key in fixed if key in settings}
    if fixed | given == fixed:
        return kind
    for subclass in kind.__subclasses__():
        if "fixed" in vars(subclass) and given == dict(subclass.fixed):
            return subclass
    raise UserError(
        f"{where}: {', '.join(given)} can only be changed together, by a variant, found {given}; "
        f"known variants: {', '.join(getattr(kind, 'variants', {})) or 'none'}"
    )


def _read_union(kind: Any, value: Any, where: str, tables: Tables) -> Any:
    choices = typing.get_args(kind)
    if value is None and type(None) in choices:
        return None
    complaints = []
    for choice in choices:
        if choice is type(None):
            continue
        try:
            return read(choice, value, where, tables)
        except UserError as error:
            complaints.append(str(error))
    raise UserError("; or ".join(complaints))


def _read_tuple(kind: Any, value: Any, where: str, tables: Tables) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise UserError(f"{where} must be a list, found {value!r}")
    kinds = typing.get_args(kind)
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    if len(kinds) != len(value):
        raise UserError(f"{where} must have {len(kinds)} entries, found {len(value)}")
    return tuple(
        read(each, entry, f"{where}[{place}]", tables)
        for place, (each, entry) in enumerate(zip(kinds, value))
    )


def _read_mapping(kind: Any, value: Any, where: str, tables: Tables) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise UserError(f"{where} must be a table, found {value!r}")
    of = typing.get_args(kind)[1]
    return {str(key): read(of, entry, f"{where}.{key}", tables) for key, entry in value.items()}


def _read_function(value: Any, where: str) -> Any:
    if not callable(value):
        raise UserError(f"{where} must be a function, found {value!r}")
    return value


def _read_scalar(kind: Any, value: Any, where: str) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is float and isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{where} must be a finite number, found {value}")
    if kind in (int, float, str, bool) and type(value) is kind:
        return value
    name = getattr(kind, "__name__", str(kind))
    raise UserError(f"{where} must be {name}, found {value!r} ({type(value).__name__})")


def plain(value: Any, tables: Tables) -> Any:
    """Convert a value to nested dicts, lists and scalars for JSON: the inverse of :func:`read`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        settings = {
            field.name: plain(getattr(value, field.name), tables)
            for field in dataclasses.fields(value)
            if not (field.metadata.get(ADDED) and getattr(value, field.name) == field.default)
        }
        for family, (_, table) in tables.items():
            if isinstance(value, family):
                name = _name_of(type(value), table)
                return {"name": name} | settings | dict(getattr(value, "fixed", {}))
        return settings
    if isinstance(value, tuple | list):
        return [plain(entry, tables) for entry in value]
    if isinstance(value, Mapping):
        return {key: plain(entry, tables) for key, entry in value.items()}
    return value


def _name_of(kind: type, table: Mapping[str, str]) -> str:
    """Return the class's name in the table; a subclass with fixed settings has its parent's.

    A class of the user's own is named by its script.
    """
    names = {entry: name for name, entry in table.items()}
    candidates = [kind, *(base for base in kind.__mro__[1:] if "fixed" in vars(kind))]
    for each in candidates:
        path = f"{each.__module__}:{each.__qualname__}"
        if path in names:
            return names[path]
    return own_name(kind)
