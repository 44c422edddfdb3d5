"""Compact payloads: rounded changes, the largest of them only, and error feedback.

A client encodes the change of its weights and the server decodes it before anything else looks at
it: bounds judge, and ring sums add, what was decoded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Mean, Update, over_leading_axes, weight_of
from fedquilt.core.seeding import generator_for
from fedquilt.core.tree import SEPARATOR, Tree, byte_count, flatten, unflatten
from fedquilt.core.update_checks import RefusedUpdate

Numbers: TypeAlias = Literal["float32", "bfloat16", "int8"]
CHANGES = ("body", "head", "spare_rows")  # the parts that are changes of weights
LEAST = 64  # numbers; encoding a smaller tensor would save nothing
LEVELS = 127  # of int8 on each side of 0
LOW_BITS = 16  # of a float32, which bfloat16 lacks


@dataclass(frozen=True, kw_only=True)
class PayloadOptions:
    """How the changes of weights travel, and whether fixed buffers do."""

    numbers: Numbers = "float32"  # others are rounded up or down at random, right on average
    top_share: float = 1.0  # of each tensor's numbers: the largest changes only
    error_feedback: bool = True  # what was lost is added to the client's next change
    send_fixed: bool = True  # buffers that no training changes; else clients build them themselves

    def __post_init__(self) -> None:
        if not 0 < self.top_share <= 1:
            raise UserError(
                f"payload.top_share must be above 0 and at most 1, found {self.top_share:g}"
            )

    @property
    def is_lossy(self) -> bool:
        return self.numbers != "float32" or self.top_share < 1


AS_THEY_ARE = PayloadOptions()


def compacted(
    update: Update, unsent: Tree, options: PayloadOptions, *names: int | str
) -> tuple[Update, dict[str, Tree]]:
    """Return the update as the server decodes it, and what it lacks of each part.

    Args:
        update: what the method sends.
        unsent: what earlier updates of this client lacked; empty without error feedback.
        options: how to encode.
        names: of the seed that rounding draws from, such as run, round and client.
    """
    found, left = dict(update), dict[str, Tree]()
    for name, made in _compact_parts(update, unsent, options, *names):
        found[name] = made.decoded
        left |= {name: made.lost} if made.lost else {}
    return found, left


def encoded_update(
    update: Update, unsent: Tree, options: PayloadOptions, *names: int | str
) -> tuple[Update, dict[str, Tree]]:
    """Return the update as it travels, where :func:`compacted` returns what it is decoded to."""
    found, left = dict(update), dict[str, Tree]()
    for name, made in _compact_parts(update, unsent, options, *names):
        found[name] = made.encoded
        left |= {name: made.lost} if made.lost else {}
    return found, left


def decoded_update(update: Update, expected: Update, options: PayloadOptions) -> Update:
    """Return an update that travelled as :func:`encoded_update` made it.

    Raise RefusedUpdate if it is not what the options make of an update like ``expected``.
    """
    found = dict(update)
    for name in CHANGES:
        part, like = update.get(name), expected.get(name)
        if isinstance(part, Mean) and isinstance(like, Mean):
            value = _decoded_value(part.value, like.value, options, name)
            found[name] = replace(part, value=value, sent_bytes=byte_count(part.value))
    return found


@dataclass(frozen=True)
class _Compacted:
    """A part as it travels, what the server makes of it, and what was lost of it."""

    encoded: Mean
    decoded: Mean
    lost: Tree


def _compact_parts(
    update: Update, unsent: Tree, options: PayloadOptions, *names: int | str
) -> Iterator[tuple[str, _Compacted]]:
    assert isinstance(unsent, Mapping)
    for name in CHANGES:
        part = update.get(name)
        if isinstance(part, Mean):
            draws = generator_for(*names, "payload", name)
            yield name, _compact_part(part, unsent.get(name, {}), options, draws)


def is_encoded(leaf: Tensor) -> bool:
    return leaf.numel() >= LEAST and leaf.dtype == torch.float32


def _compact_part(
    part: Mean, unsent: Tree, options: PayloadOptions, draws: torch.Generator
) -> _Compacted:
    weight = weight_of(part)
    before, decoded, lost = flatten(unsent), {}, {}
    travels: dict[str, Tensor] = {}
    for path, leaf in flatten(part.value).items():
        if not is_encoded(leaf):
            decoded[path] = travels[path] = leaf
            continue
        wanted = leaf + before[path].to(leaf.device) if path in before else leaf
        # A row without weight counts nowhere: it must not take the place of others, nor be kept.
        counts = over_leading_axes(weight.to(leaf.device), leaf) > 0
        wanted = torch.where(counts, wanted, torch.zeros_like(wanted))
        encoded = encode(wanted, options, draws)
        decoded[path] = decode(encoded, wanted)
        travels |= {_below(path, key): each for key, each in encoded.items()}
        if options.error_feedback:
            lost[path] = wanted - decoded[path]
    sent = sum(each.nbytes for each in travels.values())
    return _Compacted(
        encoded=replace(part, value=unflatten(travels)),
        decoded=replace(part, value=unflatten(decoded), sent_bytes=sent),
        lost=unflatten(lost),
    )


def _decoded_value(value: Tree, like: Tree, options: PayloadOptions, where: str) -> Tree:
    """Decode what was agreed to be encoded; all else is left to the check of the update."""
    flat = flatten(value)
    for path, leaf in flatten(like).items():
        if is_encoded(leaf):
            below = [name for name in flat if name.startswith(_below(path, ""))]
            found = {name.removeprefix(_below(path, "")): flat.pop(name) for name in below}
            _check_encoded(found, leaf, options, f"part {where!r}, {path!r}")
            flat[path] = decode(found, leaf)
    decoded: Tree = unflatten(flat)
    return decoded


def _check_encoded(
    found: Mapping[str, Tensor], like: Tensor, options: PayloadOptions, where: str
) -> None:
    """Raise RefusedUpdate unless these tensors have the form that :func:`encode` gives them."""
    given = {key: (each.dtype, tuple(each.shape)) for key, each in found.items()}
    if given != _form(like, options):
        raise RefusedUpdate(
            f"{where}: its encoding is not the agreed one; found {given}, expected "
            f"{_form(like, options)}"
        )
    if options.top_share < 1:
        places, length = _unpacked(found, like.numel()), like.numel()
        if len(places) != len(found["numbers"]) or bool((places[1:] <= places[:-1]).any()):
            raise RefusedUpdate(f"{where}: the places of its changes are not as many, or repeated")
        if not 0 <= int(places[0]) <= int(places[-1]) < length:
            raise RefusedUpdate(f"{where}: the place of a change is not in 0..{length - 1}")


def _form(like: Tensor, options: PayloadOptions) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    """Return the dtypes and shapes in which a tensor like this one travels."""
    length, shape = like.numel(), tuple(like.shape)
    places: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {}
    if options.top_share < 1:
        shape = (math.ceil(options.top_share * length),)
        octets = math.ceil(length / 8)
        if 4 * shape[0] <= octets:
            places = {"places": (torch.int32, shape)}
        else:
            places = {"chosen": (torch.uint8, (octets,))}
    scale = {"scale": (torch.float32, shape[:1] if len(shape) > 1 else ())}
    dtype = getattr(torch, options.numbers)
    return {"numbers": (dtype, shape), **(scale if options.numbers == "int8" else {}), **places}


def _below(path: str, name: str) -> str:
    return f"{path}{SEPARATOR}{name}" if path else name


def encode(leaf: Tensor, options: PayloadOptions, draws: torch.Generator) -> dict[str, Tensor]:
    """Return the tensors that travel for a float32 tensor."""
    if options.top_share == 1:
        return _rounded(leaf, options.numbers, draws)
    flat = leaf.reshape(-1)
    count = math.ceil(options.top_share * len(flat))
    places = flat.abs().topk(count).indices.sort().values
    return _rounded(flat[places], options.numbers, draws) | _packed(places, len(flat))


def decode(encoded: Mapping[str, Tensor], like: Tensor) -> Tensor:
    """Return the float32 tensor, of the shape of ``like``, that was encoded."""
    numbers = encoded["numbers"].to(torch.float32)
    if "scale" in encoded:
        numbers = numbers * over_leading_axes(encoded["scale"], numbers)
    if "places" not in encoded and "chosen" not in encoded:
        return numbers
    found = torch.zeros(like.numel(), dtype=torch.float32, device=like.device)
    found[_unpacked(encoded, like.numel())] = numbers
    return found.reshape(like.shape)


def _rounded(values: Tensor, numbers: Numbers, draws: torch.Generator) -> dict[str, Tensor]:
    """Round up or down at random, so that the expected value is the number itself.

    NaN and infinity stay what they are, or become NaN: the check of the update names the part.
    """
    if numbers == "float32":
        return {"numbers": values.clone()}
    if numbers == "bfloat16":
        noise = torch.randint(2**LOW_BITS, values.shape, generator=draws, dtype=torch.int32)
        bits = values.contiguous().view(torch.int32) + noise.to(values.device)
        up_or_down = (bits & -(2**LOW_BITS)).view(torch.float32)
        is_safe = values.isfinite() & up_or_down.isfinite()
        return {"numbers": torch.where(is_safe, up_or_down, values).to(torch.bfloat16)}
    # A scale for each row, so that a row of small numbers keeps as many digits as others.
    rows = values.reshape(len(values), -1) if values.ndim > 1 else values.reshape(1, -1)
    scale = rows.abs().amax(1) / LEVELS
    steps = rows / torch.where(scale > 0, scale, 1.0)[:, None]
    noise = torch.rand(rows.shape, generator=draws).to(values.device)
    integers = (steps + noise).floor().clamp(-LEVELS, LEVELS).to(torch.int8)
    return {
        "numbers": integers.reshape(values.shape),
        "scale": scale if values.ndim > 1 else scale[0],
    }


def _packed(places: Tensor, length: int) -> dict[str, Tensor]:
    """Return the places as int32 or, if that is shorter, as one bit for every number."""
    if 4 * len(places) <= math.ceil(length / 8):
        return {"places": places.to(torch.int32)}
    bits = torch.zeros(8 * math.ceil(length / 8), dtype=torch.uint8, device=places.device)
    bits[places] = 1
    return {"chosen": (bits.reshape(-1, 8) * _powers(places.device)).sum(1, dtype=torch.uint8)}


def _unpacked(encoded: Mapping[str, Tensor], length: int) -> Tensor:
    if "places" in encoded:
        return encoded["places"].long()
    octets = encoded["chosen"]
    bits = (octets[:, None] & _powers(octets.device)) != 0
    return bits.reshape(-1)[:length].nonzero()[:, 0]


def _powers(device: torch.device) -> Tensor:
    return 2 ** torch.arange(8, dtype=torch.uint8, device=device)
