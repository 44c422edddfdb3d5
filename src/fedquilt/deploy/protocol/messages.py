"""Messages between server and sites: a JSON header followed by safetensors, no pickle."""

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
from fedquilt.core.shown_text import shown
from fedquilt.core.tree import SEPARATOR, Tree, flatten, unflatten
from fedquilt.core.version import VERSION
from fedquilt.deploy.protocol.message_bounds import (
    MAX_HEADER_BYTES,
    BadMessage,
    check_paths,
    check_table,
    parse_facts,
)

MAGIC = b"fedquilt message 1\n"
LENGTH_BYTES = 8
MAX_FACT = 100  # characters of a fact that a reply repeats
# Kinds of requests. Only the first two are answered with what was trained on.
SURVEY, TRAIN = "survey", "train"
VALIDATE = "validate"  # the network after a round, judged on the site's validation images
END = "end"  # the model of the study; it trains nothing
# Of the model that the end brought, once: histograms of its scores, and what it is worth.
HISTOGRAMS, REPORT = "histograms", "report"
SEE_LOG = "see the site's log"  # in place of an error's text, which may hold file names
HAS_LEFT = "SiteHasLeft"  # the error of a site that takes no further part
EVERY_SITE = "*"  # the "site" of a request that all sites receive
KINDS: Mapping[str, type[Sum | Mean | Gather]] = {"Sum": Sum, "Mean": Mean, "Gather": Gather}
GATHER_FLAGS = tuple(each.name for each in fields(Gather) if each.type == "bool")

# Names of dtypes in the safetensors format: https://github.com/huggingface/safetensors#format
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
ALIGNMENT = 8  # the safetensors header is padded with blanks, so that the data are aligned


@dataclass(frozen=True)
class Message:
    """A request or a reply."""

    facts: Mapping[str, Any]  # the header, as JSON
    tree: Any  # tensors by name


def pack(message: Message) -> bytes:
    header = {"facts": message.facts, "empty": sorted(empty_branches(message.tree))}
    text = json.dumps(header, allow_nan=False).encode()
    size = len(text).to_bytes(LENGTH_BYTES, "big")
    return b"".join((MAGIC, size, text, *as_safetensors(message.tree)))


def unpack(content: bytes) -> Message:
    """Return the message in ``content``; raise only BadMessage, whatever the bytes are."""
    start = len(MAGIC) + LENGTH_BYTES
    if content[: len(MAGIC)] != MAGIC or len(content) < start:
        raise BadMessage("this is not a fedquilt message of this format version")
    length = int.from_bytes(content[len(MAGIC) : start], "big")
    if length > min(MAX_HEADER_BYTES, len(content) - start):
        raise BadMessage(f"the header's length is given as {length} bytes, which is too large")
    tensors = memoryview(content)[start + length :]
    header = parse_facts(content[start : start + length])
    if not isinstance(header, dict) or not isinstance(header.get("empty"), list):
        raise BadMessage("the header has no facts, or no list of empty branches")
    facts, empty = header.get("facts"), header["empty"]
    check_table(tensors)
    check_paths(empty)
    try:
        tree = _with_empty_branches(unflatten(load(bytes(tensors))), empty)
    except SafetensorError as error:
        raise BadMessage(f"the tensors are damaged: {error}") from error
    except Exception as error:  # whatever a stranger's bytes do to a parser
        raise BadMessage(f"the tensors do not make a tree: {type(error).__name__}") from error
    if not isinstance(facts, dict):
        raise BadMessage("the header has no facts")
    return Message(facts, tree)


def failure(request: bytes, site: str, error: str, text: str) -> bytes:
    """Return the reply of a site that cannot answer; the request may be damaged."""
    try:
        asked = unpack(request).facts
    except BadMessage:
        asked = {}
    told = {"site": site, "version": VERSION, "error": error, "text": text}
    return pack(Message({**repeated(asked, "kind", "study", "round"), **told}, {}))


def repeated(facts: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return facts of a request for its reply and for logs; what is odd, as short text."""
    return {
        name: fact if type(fact) is int and abs(fact) < 2**63 else shown(fact, limit=MAX_FACT)
        for name, fact in ((name, facts.get(name)) for name in names)
        if fact is not None
    }


def update_message(facts: Mapping[str, Any], update: Update) -> Message:
    """Return an update as a message, with its kinds in the header and its weights as tensors."""
    parts = {
        name: {"kind": type(part).__name__}
        | {flag: getattr(part, flag) for flag in GATHER_FLAGS if isinstance(part, Gather)}
        for name, part in update.items()
    }
    tree: dict[str, Tree] = {"value": {name: part.value for name, part in update.items()}}
    weights = {name: weight_of(part) for name, part in update.items() if isinstance(part, Mean)}
    return Message({**facts, "parts": parts}, tree | ({"weight": weights} if weights else {}))


def update_of(message: Message) -> Update:
    """Return the update in a message; its names, shapes and numbers are checked elsewhere."""
    parts = message.facts.get("parts")
    if not isinstance(parts, dict) or not isinstance(message.tree, dict):
        raise BadMessage("the message holds no update")
    values, weights = message.tree.get("value", {}), message.tree.get("weight", {})
    update: dict[str, Sum | Mean | Gather] = {}
    for name, described in parts.items():
        kind = described.get("kind") if isinstance(described, dict) else None
        if (
            not isinstance(kind, str)
            or kind not in KINDS
            or not isinstance(values, dict)
            or name not in values
        ):
            raise BadMessage(f"part {name!r} has no valid kind or no value")
        if kind == "Mean":
            weight = weights.get(name) if isinstance(weights, dict) else None
            if not isinstance(weight, Tensor):
                raise BadMessage(f"part {name!r} is a mean without a weight")
            update[name] = Mean(values[name], weight)
        elif kind == "Gather":
            flags = {flag: described.get(flag) is True for flag in GATHER_FLAGS}
            update[name] = Gather(values[name], **flags)
        else:
            update[name] = Sum(values[name])
    return update


def as_safetensors(tree: Tree) -> Iterator[bytes | memoryview]:
    """Yield the chunks of a safetensors file without copying the tensors."""
    # Largest dtypes first, so that every tensor is aligned to its element size.
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


def empty_branches(tree: Tree, prefix: str = "") -> list[str]:
    """Return the paths of branches without tensors, which safetensors cannot store."""
    if isinstance(tree, Tensor):
        return []
    if not tree:
        return [prefix]
    return [
        path
        for name, branch in tree.items()
        for path in empty_branches(branch, f"{prefix}{SEPARATOR}{name}" if prefix else name)
    ]


def _with_empty_branches(tree: Any, paths: list[str]) -> Any:
    for path in paths:
        branch = tree
        for name in path.split(SEPARATOR) if path else ():
            branch = branch.setdefault(name, {})
    return tree
