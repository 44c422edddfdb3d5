"""The two streams of the command line: results go to one, remarks along the way to the other."""

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

# In a file or a pipe rich folds tables to 80 columns, though nothing there asks for it.
_has_width = sys.stdout.isatty() or "COLUMNS" in os.environ
results = Console(highlight=False, width=None if _has_width else 160)
remarks = Console(stderr=True, highlight=False)


def print_json(content: Any) -> None:
    typer.echo(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False))


def say(text: str) -> None:
    """A remark; names in square brackets are no markup, and long lines stay whole for copying."""
    remarks.print(Text(text), soft_wrap=True)


def note(text: str) -> None:
    remarks.print(Text.assemble(("note: ", "yellow"), text), soft_wrap=True)


def show_error(error: UserError) -> None:
    remarks.print(Text(f"error: {error}", style="red"), soft_wrap=True)
    for line in getattr(error, "__notes__", ()):
        remarks.print(Text(f"  {line}", style="red"), soft_wrap=True)


class Notes(logging.Handler):
    """Shows what fedquilt logs as notes, each once: a network may be built several times."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text not in self._said:
            self._said.add(text)
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
