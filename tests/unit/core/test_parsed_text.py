"""JSON and TOML that is nested without end is a ValueError, like any other damage."""

from __future__ import annotations

import pytest

from fedquilt.core.parsed_text import MAX_DEPTH, parse_json, parse_table, parse_toml

DEEP_JSON = ['{"a":' * 3000 + "1" + "}" * 3000, "[" * 100_000 + "]" * 100_000]
DEEP_TOML = [
    "a = " + "[" * 3000 + "]" * 3000,
    ".".join("a" * 3000) + " = 1",
    "[" + ".".join("a" * 3000) + "]",
]


@pytest.mark.parametrize("text", DEEP_JSON)
def test_deep_json(text: str) -> None:
    with pytest.raises(ValueError, match=f"more than {MAX_DEPTH} levels deep"):
        parse_json(text)


@pytest.mark.parametrize("text", DEEP_TOML)
def test_deep_toml(text: str) -> None:
    with pytest.raises(ValueError, match=f"more than {MAX_DEPTH} levels deep"):
        parse_toml(text)


def test_the_limit_is_exact() -> None:
    """A value in as many tables as there are levels but one."""
    assert parse_json("[" * (MAX_DEPTH - 1) + "1" + "]" * (MAX_DEPTH - 1))
    with pytest.raises(ValueError, match="levels deep"):
        parse_json("[" * MAX_DEPTH + "1" + "]" * MAX_DEPTH)


def test_a_table_is_expected() -> None:
    assert parse_table("a = 1", ".toml") == parse_table('{"a": 1}', ".json") == {"a": 1}
    with pytest.raises(ValueError, match="expected a table"):
        parse_table("[]", ".json")
