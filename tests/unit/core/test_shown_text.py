"""Text from outside cannot move the cursor, fake a line, or turn the direction of writing."""

from __future__ import annotations

import logging
import sys

import pytest

from fedquilt.core.shown_text import EscapedFormatter, shown, shown_lines

FAKE = "\x1b[1A\x1b[2Kall 12 rounds are done"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Lungenödem 肺水腫", "Lungenödem 肺水腫"),
        (
            "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
            "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        ),
        (FAKE, r"\u001b[1A\u001b[2Kall 12 rounds are done"),
        ("a\nround 2 of 3: done\r", r"a\nround 2 of 3: done\r"),
        ("\x9b2K", r"\u009b2K"),  # an ESC [ in one character
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("a\u2028b\u2029c\ufeff", r"a\u2028b\u2029c\ufeff"),
        ("\U000e0041", r"\udb40\udc41"),  # an invisible tag
        ("\ud800", r"\ud800"),
        (ValueError("x\ty"), r"x\ty"),
    ],
)
def test_control_characters_become_codes(text: object, expected: str) -> None:
    assert shown(text) == expected
    assert shown(shown(text)) == shown(text)


def test_a_long_text_is_cut() -> None:
    assert shown("a" * 3000, limit=5) == "aaaaa ... (cut)"
    assert shown("aaaaa", limit=5) == "aaaaa"
    assert len(shown("\x1b" * 10**7)) < 2100


def test_text_of_several_lines_keeps_them() -> None:
    assert shown_lines("a\tb\n\x1bc\r\n") == "a\tb\n\\u001bc\\r\n"


def test_a_log_record_is_one_line_and_a_traceback_is_indented() -> None:
    try:
        raise ValueError("first\n2026-01-01 INFO fake \x1b[2K")
    except ValueError:
        record = logging.LogRecord("n", 20, "p", 1, "of %s", ("a\nb\x1b",), sys.exc_info())
    lines = EscapedFormatter("%(levelname)s %(message)s").format(record).splitlines()
    assert lines[0] == r"INFO of a\nb\u001b"
    assert all(line.startswith("    ") for line in lines[1:])
    assert lines[-1] == r"    2026-01-01 INFO fake \u001b[2K"
    assert record.getMessage() == "of a\nb\x1b"  # for other handlers
