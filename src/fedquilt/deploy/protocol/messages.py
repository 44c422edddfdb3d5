"""Messages between server and site: a JSON header and safetensors, no pickle."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from fedquilt.core.payload import Gather, Mean, Sum, Update, weight_of
from fedquilt.core.tree import SEPARATOR, Tree, flatten, unflatten

# The format's own names: https://github.com/huggingface/safetensors#format
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
ALIGNMENT = 8  # of the numbers behind the header, which is filled up with blanks


def as_safetensors(tree: Tree) -> Iterator[bytes | memoryview]:
    """The pieces of the file, in order; they lend the tensors' own memory."""
    # Wide numbers first, so that every tensor begins at a multiple of its width.
    flat = sorted(flatten(tree).items(), key=lambda item: (-item[1].element_size(), item[0]))
    header, end = {}, 0
    for name, leaf in flat:
        start, end = end, end + leaf.nbytes
        header[name] = {
            "dtype": DTYPES[leaf.dtype],
            "shape": list(leaf.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    yield len(text).to_bytes(8, "little")
    yield text
    for _, leaf in flat:
        yield _memory(leaf)


def _memory(leaf: Tensor) -> memoryview:
    flat = leaf.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return flat.numpy().data


MAGIC = b"fedquilt message 1\n"
LENGTH_BYTES = 8
LARGEST_HEADER = 2**20
END = "end"  # the request after the last round: nothing is trained, and nothing asked
EVERY_SITE = "*"  # whom a request is for when all get the same
MARKS = tuple(each.name for each in fields(Gather) if each.type == "bool")
KINDS: Mapping[str, type[Sum | Mean | Gather]] = {"Sum": Sum, "Mean": Mean, "Gather": Gather}


class BadMessage(ValueError):
    """Bytes that are no message, or not one of this form."""


@dataclass(frozen=True)
class Message:
    facts: Mapping[str, Any]  # what JSON can hold
    tree: Any  # tensors by name


def pack(message: Message) -> bytes:
    header = {"facts": message.facts, "empty": sorted(_empty_branches(message.tree))}
    text = json.dumps(header, allow_nan=False).encode()
    size = len(text).to_bytes(LENGTH_BYTES, "big")
    return b"".join((MAGIC, size, text, *as_safetensors(message.tree)))


def unpack(content: bytes) -> Message:
    """Raise BadMessage, and nothing else, for whatever is not a whole message."""
    start = len(MAGIC) + LENGTH_BYTES
    if content[: len(MAGIC)] != MAGIC or len(content) < start:
        raise BadMessage("this is not a message of fedquilt, or one of another version's form")
    length = int.from_bytes(content[len(MAGIC) : start], "big")
    if length > min(LARGEST_HEADER, len(content) - start):
        raise BadMessage(f"the header claims {length} bytes")
    try:
        header = json.loads(content[start : start + length])
        facts, empty = header["facts"], header["empty"]
        tree = _with_empty_branches(unflatten(load(content[start + length :])), empty)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadMessage(f"the header or the names of the tensors are damaged: {error}") from error
    except SafetensorError as error:
        raise BadMessage(f"the tensors are damaged: {error}") from error
    if not isinstance(facts, dict):
        raise BadMessage("the header holds no table of facts")
    return Message(facts, tree)


def update_message(facts: Mapping[str, Any], update: Update) -> Message:
    """An update as a message; its kinds go into the header, its weights beside its values."""
    parts = {
        name: {"kind": type(part).__name__}
        | {mark: getattr(part, mark) for mark in MARKS if isinstance(part, Gather)}
        for name, part in update.items()
    }
    tree: dict[str, Tree] = {"value": {name: part.value for name, part in update.items()}}
    weights = {name: weight_of(part) for name, part in update.items() if isinstance(part, Mean)}
    return Message({**facts, "parts": parts}, tree | ({"weight": weights} if weights else {}))


def update_of(message: Message) -> Update:
    """The update in a message; whether its names and numbers are right is for others to check."""
    parts = message.facts.get("parts")
    if not isinstance(parts, dict) or not isinstance(message.tree, dict):
        raise BadMessage("the message holds no update")
    values, weights = message.tree.get("value", {}), message.tree.get("weight", {})
    update: dict[str, Sum | Mean | Gather] = {}
    for name, described in parts.items():
        kind = described.get("kind") if isinstance(described, dict) else None
        if kind not in KINDS or not isinstance(values, dict) or name not in values:
            raise BadMessage(f"part {name!r} has no known kind, or no value")
        if kind == "Mean":
            weight = weights.get(name) if isinstance(weights, dict) else None
            if not isinstance(weight, Tensor):
                raise BadMessage(f"part {name!r} is a mean without a weight")
            update[name] = Mean(values[name], weight)
        elif kind == "Gather":
            marks = {mark: described.get(mark) is True for mark in MARKS}
            update[name] = Gather(values[name], **marks)
        else:
            update[name] = Sum(values[name])
    return update


def _empty_branches(tree: Tree, prefix: str = "") -> list[str]:
    """Paths of branches without tensors, which safetensors cannot hold."""
    if isinstance(tree, Tensor):
        return []
    if not tree:
        return [prefix]
    return [
        path
        for name, branch in tree.items()
        for path in _empty_branches(branch, f"{prefix}{SEPARATOR}{name}" if prefix else name)
    ]


def _with_empty_branches(tree: Any, paths: list[str]) -> Any:
    for path in paths:
        branch = tree
        for name in path.split(SEPARATOR) if path else ():
            branch = branch.setdefault(name, {})
    return tree
