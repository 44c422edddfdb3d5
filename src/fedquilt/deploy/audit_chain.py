"""A file of events in which every line holds the hash of all lines before it.

An altered, removed, inserted or moved line breaks the chain. Lines removed from the end do not:
note the last hash elsewhere, and ask ``verify_chain`` whether the file still holds it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from fedquilt.core.errors import UserError

AUDIT_FILE = "audit.jsonl"  # in the run folder and in a site's work folder
CUT_SHORT = "cut short"  # the event after a line that a crash cut short
_LINK = re.compile(rb'(.*), "chain": "([0-9a-f]{64})"\}', re.DOTALL)


@dataclass(frozen=True)
class ChainReport:
    """What ``verify_chain`` found."""

    events: int
    unchained: int  # lines of an earlier fedquilt before the first hash, which covers them
    last: str | None  # the last hash
    damage: str | None  # where and how the chain is broken

    def to_dict(self) -> dict[str, Any]:
        return {"ok": self.damage is None, **self.__dict__}


def append_event(path: Path, facts: dict[str, Any]) -> None:
    """Append an event and wait until it is on disk; several processes may do so."""
    with path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        before = _end_of(file)
        torn = before.torn
        if torn:
            told = {"event": CUT_SHORT, "hash": hashlib.sha256(torn).hexdigest()}
            before = _write(file, b"\n", before.chain, {"time": facts["time"], **told})
        _write(file, b"", before.chain, facts)
        file.flush()
        os.fsync(file.fileno())


def verify_chain(path: Path, noted: str | None = None) -> ChainReport:
    """Check every line; ``noted`` is a hash that the file must hold."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"the audit log {path} cannot be read: {error.strerror}") from error
    chain, events, unchained, damage = "", 0, 0, None
    seen: set[str] = set()
    torn: tuple[int, str] | None = None  # the number and the hash of an unfinished line
    earlier = hashlib.sha256()  # of the lines before the first with a hash
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        link = _LINK.fullmatch(line)
        if link is None and not chain:
            unchained += 1
            earlier.update(line + b"\n")
        elif link is None:
            torn = torn or (number, hashlib.sha256(line).hexdigest())
        else:
            body, before = link[1] + b"}", chain or (earlier.hexdigest() if unchained else "")
            if link[2].decode() != _chained(before, body):
                damage = f"line {number} does not follow from the lines before it"
                break
            if torn is not None and not _tells_of(body, torn[1]):
                break
            chain, torn, events = link[2].decode(), None, events + 1
            seen.add(chain)
    if damage is None and torn is not None:
        damage = f"line {torn[0]} has no hash"
    if damage is None and noted is not None and noted not in seen:
        damage = f"no line has the noted hash {noted}: lines were removed, or it is another file"
    return ChainReport(events, unchained, chain or None, damage)


def read_events(path: Path, start: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Return the whole events after a position in the file, and the position after them."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            content = file.read()
    except FileNotFoundError:
        return [], start
    whole = content[: content.rfind(b"\n") + 1]
    return list(_parsed(whole)), start + len(whole)


def _parsed(content: bytes) -> Iterator[dict[str, Any]]:
    for line in content.splitlines():
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):  # a line that a crash cut short
            continue
        if isinstance(event, dict):
            yield event


@dataclass(frozen=True)
class _End:
    chain: str
    torn: bytes  # an unfinished last line


def _end_of(file: IO[bytes]) -> _End:
    """Return the last hash, or the hash of all of a file without hashes."""
    size = file.seek(0, os.SEEK_END)
    reach = 2**12
    while True:
        start = max(0, size - reach)
        file.seek(start)
        tail = file.read()
        whole, _, torn = tail.rpartition(b"\n")
        for line in reversed(whole.split(b"\n")[0 if start == 0 else 1 :]):
            if (link := _LINK.fullmatch(line)) is not None:
                return _End(link[2].decode(), torn)
        if start == 0:
            earlier = tail + (b"\n" if torn else b"")
            return _End(hashlib.sha256(earlier).hexdigest() if earlier else "", torn)
        reach *= 8


def _write(file: IO[bytes], lead: bytes, chain: str, facts: dict[str, Any]) -> _End:
    body = json.dumps(facts, allow_nan=False).encode()
    digest = _chained(chain, body)
    file.write(lead + body[:-1] + b', "chain": "' + digest.encode() + b'"}\n')
    return _End(digest, b"")


def _chained(chain: str, body: bytes) -> str:
    return hashlib.sha256(chain.encode() + b"\n" + body).hexdigest()


def _tells_of(body: bytes, torn: str) -> bool:
    event = json.loads(body)
    return (event.get("event"), event.get("hash")) == (CUT_SHORT, torn)
