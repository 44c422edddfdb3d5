"""Which labels occur together, from keyed hashes of images that several clients hold."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from typing import Literal

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.data.client_data import ClientData

Correlation = Literal["overlap", "conditional"]

CODE_BYTES = 16
GATHERED = 256  # images whose pixels are looked up at once
NOTHING = torch.zeros((), dtype=torch.bool)


def coded_positives(data: ClientData) -> dict[str, Tensor]:
    """Every image with a positive once: its code, (m, 16) uint8, and its positives, (m, C) bool.

    Codes are of raw pixels, before any augmentation, and in order of their bytes. Without the
    clients' secret nobody can tell from a code whether it is of a given image.
    """
    if not data.secret:
        raise UserError(
            f"client {data.name!r} has no secret: images are compared by hashes under a secret key "
            "that all clients share and the server does not know; give all clients the same one"
        )
    positives = data.positives()
    found: dict[bytes, Tensor] = {}
    for rows in positives.any(1).nonzero().flatten().split(GATHERED):
        for row, pixels in zip(rows.tolist(), data.pixels(rows).cpu().numpy()):
            code = hmac.digest(data.secret, pixels.tobytes(), "sha256")[:CODE_BYTES]
            found[code] = found.get(code, NOTHING) | positives[row]
    codes = [list(code) for code in sorted(found)]
    return {
        "codes": torch.tensor(codes, dtype=torch.uint8).reshape(-1, CODE_BYTES),
        "positives": _stacked(found, positives.shape[1]),
    }


def joint_counts(answers: Iterable[Mapping[str, Tensor]], class_count: int) -> Tensor:
    """(C, C) int64: images that are positive for both classes, at one client or at two.

    On the diagonal, a class's images, each of them once.
    """
    found: dict[bytes, Tensor] = {}
    for answer in answers:
        for code, positives in zip(answer["codes"].numpy(), answer["positives"]):
            found[code.tobytes()] = found.get(code.tobytes(), NOTHING) | positives
    table = _stacked(found, class_count).to(torch.int64)  # (images, C)
    return table.T @ table


def correlation_of(counts: Tensor, rule: Correlation) -> Tensor:
    """(C, C) in 0..1, from joint counts; 0 with itself and for a class without images.

    ``overlap``: shared images over those of the rarer class. ``conditional``: the mean of the
    shares that they are of each.
    """
    sizes = counts.diagonal().clamp(min=1)
    if rule == "overlap":
        share = counts / torch.minimum(sizes[:, None], sizes)
    else:
        share = (counts / sizes[:, None] + counts / sizes) / 2
    return share - torch.diag(share.diagonal())


def _stacked(found: Mapping[bytes, Tensor], class_count: int) -> Tensor:
    """(m, C) bool, in order of the codes."""
    rows = [found[code] for code in sorted(found)]
    return torch.stack(rows) if rows else torch.zeros(0, class_count, dtype=torch.bool)
