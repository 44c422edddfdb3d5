"""Names of a user's own code: made from scripts, recalled where given, never imported."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from fedquilt.core.errors import UserError
from fedquilt.core.own_code import is_own, own_name, recall, remember
from fedquilt.core.registry import find


def given_here() -> int:
    return 1


class OfScript:
    __module__ = "__main__"


@pytest.mark.parametrize(("file", "name"), [("/a/my_script.py", "my_script"), (None, "notebook")])
def test_a_script_is_named_by_its_file(
    file: str | None, name: str, monkeypatch: pytest.MonkeyPatch
):
    main = ModuleType("__main__")
    if file is not None:
        main.__file__ = file
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert own_name(OfScript) == f"{name}:OfScript"


def test_what_was_given_is_recalled():
    assert recall("backbone", remember(given_here)) is given_here
    assert find("backbone", {}, own_name(given_here)) is given_here


@pytest.mark.parametrize("name", ["shutil:rmtree", "my_script:never_given"])
def test_nothing_is_imported_or_looked_up(name: str):
    assert is_own(name)
    with pytest.raises(UserError, match=rf"{name}' is not part of fedquilt.*own=\["):
        find("backbone", {}, name)


def test_a_thing_without_a_name_is_refused():
    with pytest.raises(UserError, match="has no name that a recipe could hold"):
        own_name(3)
