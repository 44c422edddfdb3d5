"""PrivacyLedger: everything that leaves a site, in order, and what its noise has cost so far.

One file per site, over all studies. A line is on the disk before what it stands for is sent; a
round that is repeated with new noise is charged again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedquilt.core.errors import UserError
from fedquilt.core.gaussian_accountant import GaussianRelease, epsilon_of
from fedquilt.core.parsed_text import parse_json
from fedquilt.training.privacy_settings import Unit

LEDGER_FILE = "privacy-ledger.jsonl"  # in a site's work folder


@dataclass(frozen=True)
class Charge:
    """What left in one message; without a noise multiplier it was not protected by noise."""

    study: str  # its hash
    round: int  # -1: the survey
    parts: tuple[str, ...]
    unit: Unit
    noise_multiplier: float | None = None  # z
    sampling_rate: float = 1.0
    releases: int = 0  # with this noise

    @property
    def release(self) -> GaussianRelease | None:
        if self.noise_multiplier is None or self.releases == 0:
            return None
        return GaussianRelease(self.noise_multiplier, self.sampling_rate, self.releases)


class PrivacyLedger:
    """The file; lines are only added, and each holds the hash of the line before.

    Several studies of a site may write to it at a time.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last, self._charges = self._read()

    @property
    def charges(self) -> Sequence[Charge]:
        return tuple(self._charges)

    def spent(
        self,
        delta: float,
        unit: Unit,
        studies: Collection[str] | None = None,
        more: Iterable[Charge] = (),
    ) -> float:
        """Return the epsilon for a unit, of these studies or of all, and of ``more`` charges.

        Noise for single images says nothing about patients: it counts for images only. Noise for
        patients protects each of their images too.
        """
        counted = [
            each
            for each in (*self._charges, *more)
            if each.release is not None and (studies is None or each.study in studies)
        ]
        if unit == "patient" and any(each.unit == "image" for each in counted):
            return math.inf
        return epsilon_of([each.release for each in counted if each.release is not None], delta)

    def charge(self, charges: Iterable[Charge], check: Callable[[], object] = lambda: None) -> None:
        """Add lines and wait until they are on the disk.

        ``check`` may raise an error; it sees what other processes have charged, and none of them
        can charge between it and these lines.
        """
        with self._path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._last, self._charges = self._read()
            check()
            file.truncate(_whole(self._path.read_bytes()))
            for each in charges:
                line = json.dumps({**asdict(each), "before": self._last}, sort_keys=True)
                file.write(line.encode() + b"\n")
                self._last = _hash(line)
                self._charges.append(each)
            file.flush()
            os.fsync(file.fileno())

    def _read(self) -> tuple[str, list[Charge]]:
        last = ""
        charges: list[Charge] = []
        try:
            found = self._path.read_bytes()
        except FileNotFoundError:
            return last, charges
        for number, line in enumerate(found[: _whole(found)].decode("utf-8").splitlines(), 1):
            try:
                content: dict[str, Any] = parse_json(line)
                if content.pop("before") != last:
                    raise ValueError("it does not follow from the line before")
                charges.append(Charge(**content | {"parts": tuple(content["parts"])}))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise UserError(
                    f"{self._path}, line {number}, is damaged ({error}): it says what this site "
                    "has spent of its privacy budget. Restore it from a backup"
                ) from error
            last = _hash(line)
        return last, charges


def _whole(content: bytes) -> int:
    """The bytes before a line that a crash cut short: what it stood for was never sent."""
    return content.rfind(b"\n") + 1


def _hash(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()
