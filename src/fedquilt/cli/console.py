"""Output of the command line: results go to stdout, messages to stderr."""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from fedquilt.core.errors import UserError

# Without a terminal, rich would wrap tables at 80 columns.
_has_width = sys.stdout.isatty() or "COLUMNS" in os.environ
results = Console(highlight=False, width=None if _has_width else 160)
messages = Console(stderr=True, highlight=False)


def print_json(content: Any) -> None:
    typer.echo(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False))


def say(text: str) -> None:
    """Print a message as it is: no markup in square brackets, and no wrapping of long lines."""
    messages.print(Text(text), soft_wrap=True)


def note(text: str) -> None:
    messages.print(Text.assemble(("note: ", "yellow"), text), soft_wrap=True)


def show_error(error: UserError) -> None:
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
