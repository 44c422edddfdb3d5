"""Whatever is printed, no control character of another machine reaches the terminal."""

from __future__ import annotations

import io
import json

import pytest
from rich.table import Table
from rich.text import Text

from fedquilt.cli.console import (
    SafeConsole,
    messages,
    print_json,
    print_line,
    say,
    say_line,
    show_error,
)
from fedquilt.core.errors import UserError

FAKE = "\x1b[1A\x1b[2Kall rounds are done\x9b"
SAFE = r"\u001b[1A\u001b[2Kall rounds are done\u009b"


def test_tables_and_texts_are_escaped() -> None:
    out = io.StringIO()
    console = SafeConsole(file=out, width=200, force_terminal=True, color_system=None)
    table = Table(title=Text(FAKE))
    table.add_column("class", min_width=60)
    table.add_row(Text(FAKE))
    console.print(table)
    console.print(Text(FAKE, style="bold"), "[red]" + FAKE)
    assert out.getvalue().count(SAFE) == 4
    assert FAKE not in out.getvalue()
    assert "\x9b" not in out.getvalue()


def test_messages_and_errors_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(messages, SafeConsole)
    say(FAKE)
    say_line(f"round 1\n{FAKE}")
    error = UserError(f"refused: {FAKE}")
    error.add_note(FAKE)
    show_error(error)
    assert capsys.readouterr().err == (
        f"{SAFE}\nround 1\\n{SAFE}\nerror: refused: {SAFE}\n  {SAFE}\n"
    )


def test_results_are_escaped_and_json_stays_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_line(f"missing: north\n{FAKE}")
    assert capsys.readouterr().out == f"missing: north\\n{SAFE}\n"
    print_json({"why": FAKE + "\u202e\nü"})
    printed = capsys.readouterr().out
    assert "\x9b" not in printed
    assert "\u202e" not in printed
    assert json.loads(printed) == {"why": FAKE + "\u202e\nü"}
