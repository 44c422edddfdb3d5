"""Compact payloads: rounded changes, the largest of them only, and error feedback.

A client encodes the change of its weights and the server decodes it before anything else looks at
it: bounds judge, and ring sums add, what was decoded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Mean, Update, over_leading_axes, weight_of
from fedquilt.core.seeding import generator_for
from fedquilt.core.tree import Tree, byte_count, flatten, unflatten

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
    assert isinstance(unsent, Mapping)
    found, left = dict(update), {}
    for name in CHANGES:
        part = update.get(name)
        if isinstance(part, Mean):
            draws = generator_for(*names, "payload", name)
            found[name], lost = _compact_part(part, unsent.get(name, {}), options, draws)
            if options.error_feedback and lost:
                left[name] = unflatten(lost)
    return found, left


def _compact_part(
    part: Mean, unsent: Tree, options: PayloadOptions, draws: torch.Generator
) -> tuple[Mean, dict[str, Tensor]]:
    """Return the decoded part with the bytes of the encoded one, and what was lost by leaf."""
    weight = weight_of(part)
    before, decoded, lost, sent = flatten(unsent), {}, {}, 0
    for path, leaf in flatten(part.value).items():
        if leaf.numel() < LEAST or leaf.dtype != torch.float32:
            decoded[path] = leaf
            sent += leaf.nbytes
            continue
        wanted = leaf + before[path].to(leaf.device) if path in before else leaf
        # A row without weight counts nowhere: it must not take the place of others, nor be kept.
        counts = over_leading_axes(weight.to(leaf.device), leaf) > 0
        wanted = torch.where(counts, wanted, torch.zeros_like(wanted))
        encoded = encode(wanted, options, draws)
        decoded[path] = decode(encoded, wanted)
        lost[path] = wanted - decoded[path]
        sent += byte_count(encoded)
    return replace(part, value=unflatten(decoded), sent_bytes=sent), lost


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
