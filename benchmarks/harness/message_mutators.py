"""Mutators: damage a message as chance or an attacker would."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from fedquilt.deploy.protocol.messages import LENGTH_BYTES, MAGIC

START = len(MAGIC) + LENGTH_BYTES
DEEP = "/".join("a" * 3000)
ODD: tuple[Any, ...] = (
    *([], {}, [[]], None, True, -1, 2**70, 1.5, "", "x" * 5000, "\x1b[2J", "../../etc/passwd"),
    *(["train"], {"kind": "Mean"}, {"a": {"b": {"c": []}}}, DEEP),
)
# Written by hand, because no JSON library writes them.
RAW = (b"NaN", b"-Infinity", b"1e999", b"[" * 50_000, b'{"a":' * 2_000, b"9" * 6_000, b'"\\ud800"')

Mutator = Callable[[bytes, random.Random], bytes]


def flipped(content: bytes, draw: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.randint(1, 8)):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def cut(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content))]


def longer(content: bytes, draw: random.Random) -> bytes:
    place = draw.choice([len(content), draw.randrange(len(content))])
    return content[:place] + draw.randbytes(draw.randint(1, 400)) + content[place:]


def other_lengths(content: bytes, draw: random.Random) -> bytes:
    """Change the length of the header, or that of the table of tensors."""
    length = draw.choice([0, 1, 2**20, 2**31, 2**63, draw.randrange(2**64)])
    header = int.from_bytes(content[len(MAGIC) : START], "big")
    place, order = (len(MAGIC), "big") if draw.random() < 0.5 else (START + header, "little")
    return content[:place] + length.to_bytes(8, order) + content[place + 8 :]  # type: ignore[arg-type]


def other_header(content: bytes, draw: random.Random) -> bytes:
    """Put something odd in the place of a value in the header."""
    header, tensors = _split(content)
    place = _somewhere(header, draw)
    if draw.random() < 0.3:
        mark = "a mark that is replaced"
        text = json.dumps(_with(header, place, mark)).encode()
        return _joined(text.replace(json.dumps(mark).encode(), draw.choice(RAW)), tensors)
    return _joined(json.dumps(_with(header, place, draw.choice(ODD))).encode(), tensors)


def other_table(content: bytes, draw: random.Random) -> bytes:
    """Rename a tensor, also to below another, or change its type, shape or place."""
    header, tensors = _split(content)
    length = int.from_bytes(tensors[:8], "little")
    table = json.loads(tensors[8 : 8 + length] or b"{}")
    if not table:
        return flipped(content, draw)
    name = draw.choice(list(table))
    told = table[name]
    match draw.randrange(4):
        case 0:
            del table[name]
            other = draw.choice([*table, "x"])
            table[draw.choice([f"{other}/a", DEEP, "", "/", f"{name}//b", "a\x1b[2J"])] = told
        case 1:
            told["dtype"] = draw.choice(["F64", "I8", "BOOL", "F8_E5M2", "object", "", None, 3])
        case 2:
            told["shape"] = draw.choice([[], [-1], [2**62, 2**62], [0, 2**63], "3", [1.5], None])
        case _:
            told["data_offsets"] = draw.choice([[0, 2**63], [-8, 8], [8, 0], [], [0], None, "a"])
    text = json.dumps(table).encode()
    told_length = len(text).to_bytes(8, "little")
    return _joined(json.dumps(header).encode(), told_length + text + tensors[8 + length :])


def spliced(content: bytes, draw: random.Random) -> bytes:
    """Repeat or leave out a stretch."""
    first, second = sorted(draw.randrange(len(content)) for _ in range(2))
    return (
        content[:second] + content[first:]
        if draw.random() < 0.5
        else (content[:first] + content[second:])
    )


MUTATORS: tuple[Mutator, ...] = (
    *(flipped, cut, longer, other_lengths),
    *(other_header, other_table, spliced),
)


def _split(content: bytes) -> tuple[Any, bytes]:
    end = START + int.from_bytes(content[len(MAGIC) : START], "big")
    return json.loads(content[START:end]), content[end:]


def _joined(header: bytes, tensors: bytes) -> bytes:
    return MAGIC + len(header).to_bytes(LENGTH_BYTES, "big") + header + tensors


def _somewhere(value: Any, draw: random.Random) -> tuple[Any, ...]:
    place: tuple[Any, ...] = ()
    while isinstance(value, dict | list) and value and (not place or draw.random() < 0.7):
        key = draw.choice(list(value)) if isinstance(value, dict) else draw.randrange(len(value))
        value, place = value[key], (*place, key)
    return place


def _with(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    if not place:
        return new
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[place[0]] = _with(value[place[0]], place[1:], new)
    return changed
