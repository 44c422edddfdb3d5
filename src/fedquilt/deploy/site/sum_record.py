"""SumRecord on disk: which attempts a site has answered, and over whom each sum was unmasked.

It is written before the site answers. It holds no secret: those are in memory, for one attempt.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from fedquilt.core.atomic_files import write_json
from fedquilt.core.errors import UserError

SUMS_FILE = "sums.json"  # beside the site's states


class StoredSumRecord:
    """The record of one site and study."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / SUMS_FILE
        self._attempts, self._unmasked = self._read()

    def last_attempt(self, subject: str) -> int:
        return self._attempts.get(subject, -1)

    def survivors(self, subject: str) -> str | None:
        found = self._unmasked.get(subject)
        return None if found is None else str(found["survivors"])

    def begin(self, subject: str, number: int) -> None:
        self._attempts[subject] = number
        self._write()

    def unmask(self, subject: str, number: int, survivors: str) -> None:
        self._unmasked[subject] = {"attempt": number, "survivors": survivors}
        self._write()

    def _write(self) -> None:
        content = {"attempts": self._attempts, "unmasked": self._unmasked}
        write_json(self._path, content | {"digest": _digest(content)})

    def _read(self) -> tuple[dict[str, int], dict[str, dict[str, Any]]]:
        try:
            content: dict[str, Any] = json.loads(self._path.read_text(encoding="utf-8"))
            if content.pop("digest") != _digest(content):
                raise ValueError("it was altered")
            return content["attempts"], content["unmasked"]
        except FileNotFoundError:
            return {}, {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UserError(
                f"{self._path} is damaged ({error}): it says over whom sums were unmasked. Restore "
                "it from a backup; without it a second sum could give this site's update away"
            ) from error


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
