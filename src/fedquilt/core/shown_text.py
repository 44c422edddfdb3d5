"""shown(): text from outside, made safe for a terminal, a log file and a line of its own.

A site's error, a class name or a file name may hold control sequences that move the cursor, or
rewrite what is on the screen, and line breaks that fake a message.
"""

from __future__ import annotations

import json
import logging
import re
import unicodedata
from collections.abc import Sequence

# Joiners of words in Persian and Indian scripts and in emoji: format characters, but harmless.
JOINERS = "\u200c\u200d"
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
LAYOUT = "\n\t"  # kept in text of several lines
MAX_SHOWN = 2000  # characters of one text from outside
MOST_NAMES = 6  # in a sentence
_PLAIN = re.compile(r"[ -~]*")


def shown(text: object, *, limit: int = MAX_SHOWN) -> str:
    """Return the text on one line, with control characters escaped as in JSON, and cut."""
    escaped = _escape(str(text)[: limit + 1], kept="")
    return escaped if len(escaped) <= limit else f"{escaped[:limit]} ... (cut)"


def shown_lines(text: str) -> str:
    """Return the text with control characters escaped, except for line breaks and tabs."""
    return _escape(text, kept=LAYOUT)


def named_few(names: Sequence[str], most: int = MOST_NAMES) -> str:
    """Join names with commas; of more than ``most``, the rest is only counted."""
    found = ", ".join(names[:most])
    return found if len(names) <= most else f"{found} and {len(names) - most:,} more"


def _escape(text: str, kept: str) -> str:
    if _PLAIN.fullmatch(text):
        return text
    return "".join(
        json.dumps(character)[1:-1]
        if _is_unsafe(character) and character not in kept
        else character
        for character in text
    )


def _is_unsafe(character: str) -> bool:
    # Control and format characters, such as those that turn the direction of text; surrogates;
    # line and paragraph separators.
    kind = unicodedata.category(character)
    return kind in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in JOINERS


class EscapedFormatter(logging.Formatter):
    """Formats log records so that a record is one line, followed by the lines of a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        one_line = logging.makeLogRecord(record.__dict__ | {"msg": shown(record.getMessage())})
        one_line.args = None
        one_line.exc_text = None
        return super().format(one_line)

    def formatException(self, ei: object) -> str:  # noqa: N802 (the name in logging)
        lines = super().formatException(ei).splitlines()  # type: ignore[arg-type]
        return "\n".join(f"    {shown(line)}" for line in lines)
