"""A user's own classes and functions: a recipe names them, and only their own process has them.

A name such as ``my_script:MyMethod`` is never imported: a recipe may come from somebody else, and
reading it must run no code. It stands for what the user has given to this process.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from fedquilt.core.errors import UserError

MAIN = ("__main__", "__mp_main__")  # a script, and the same script in a process that it started

_given: dict[str, Any] = {}  # what this process was given, by name


def is_own(name: str) -> bool:
    """Whether a name is that of a user's own code; names of tables have no colon."""
    return ":" in name


def own_name(thing: Any) -> str:
    """Return ``script:name`` for a class or function, however the script was started."""
    name = getattr(thing, "__qualname__", None)
    if name is None:
        raise UserError(
            f"{thing!r} has no name that a recipe could hold; give a function or a class, for "
            "example `def small_net(channels): ...`"
        )
    module = thing.__module__
    if module in MAIN:
        file = getattr(sys.modules["__main__"], "__file__", None)
        module = "notebook" if file is None else Path(file).stem
    return f"{module}:{name}"


def remember(thing: Any) -> str:
    """Keep a class or function that the user has given, and return its name."""
    name = own_name(thing)
    _given[name] = thing
    return name


def recall(kind: str, name: str) -> Any:
    """Return what was given under this name; raise UserError if it was not given here."""
    if name not in _given:
        script, _, thing = name.partition(":")
        raise UserError(
            f"the {kind} {name!r} is not part of fedquilt: it is {thing!r} of {script!r}, which "
            "this program has not been given. Run that script again (with resume=True it goes on), "
            f"or import {thing} from it and pass it on: fedquilt.read_run(RUN, own=[{thing}])"
        )
    return _given[name]
