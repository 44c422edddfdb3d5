"""Output of the command line: results go to stdout, messages to stderr."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterable
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from fedquilt.core.errors import UserError
from fedquilt.core.shown_text import shown, shown_lines


class SafeConsole(Console):
    """A console that escapes control characters in whatever is printed, also in tables."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=shown_lines(segment.text))


# Without a terminal, rich would wrap tables at 80 columns.
_has_width = sys.stdout.isatty() or "COLUMNS" in os.environ
results = SafeConsole(highlight=False, width=None if _has_width else 160)
# Of several processes of a run, only the first one prints.
messages = SafeConsole(stderr=True, highlight=False, quiet=os.environ.get("RANK", "0") != "0")


def print_json(content: Any) -> None:
    typer.echo(shown_lines(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)))


def print_line(text: str) -> None:
    """Print one line of a result, which may hold texts of other machines."""
    typer.echo(shown(text))


def say(text: str) -> None:
    """Print a message as it is: no markup in square brackets, and no wrapping of long lines."""
    messages.print(Text(text), soft_wrap=True)


def say_line(text: str) -> None:
    """Print a message that may hold texts of other machines: it stays on one line."""
    say(shown(text))


def note(text: str) -> None:
    messages.print(Text.assemble(("note: ", "yellow"), text), soft_wrap=True)


def show_error(error: UserError) -> None:
    messages.quiet = False  # of every process
    messages.print(Text(f"error: {error}", style="red"), soft_wrap=True)
    for line in getattr(error, "__notes__", ()):
        messages.print(Text(f"  {line}", style="red"), soft_wrap=True)


class Notes(logging.Handler):
    """Shows fedquilt's log messages as notes, each only once."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._shown: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text not in self._shown:
            self._shown.add(text)
            note(text)

    def __enter__(self) -> Notes:
        logger = logging.getLogger("fedquilt")
        self._level = logger.level
        logger.setLevel(logging.INFO)
        logger.addHandler(self)
        return self

    def __exit__(self, *details: object) -> None:
        logger = logging.getLogger("fedquilt")
        logger.removeHandler(self)
        logger.setLevel(self._level)
