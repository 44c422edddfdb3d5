"""Suggestions of a name, for one that is misspelt or written in another case."""

from __future__ import annotations

import pytest

from fedquilt.core.errors import nearest

METHODS = ("fedavg", "fedmlp", "quilt")


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("fedmpl", METHODS, "; did you mean 'fedmlp'?"),
        ("FedMPL", METHODS, "; did you mean 'fedmlp'?"),
        ("QUILT!", METHODS, "; did you mean 'quilt'?"),
        ("pneumonai", ("Pneumonia", "Effusion"), "; did you mean 'Pneumonia'?"),
        ("xyz", METHODS, "; known: fedavg, fedmlp, quilt"),
        ("xyz", (), "; known: none"),
    ],
)
def test_close_names_in_any_case(name: str, known: tuple[str, ...], expected: str) -> None:
    assert nearest(name, known) == expected
