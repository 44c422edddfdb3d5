"""Label co-occurrence from keyed hashes of images that several clients hold."""

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
CHUNK = 256  # images whose pixels are gathered at once
NO_POSITIVES = torch.zeros((), dtype=torch.bool)


def coded_positives(data: ClientData) -> dict[str, Tensor]:
    """Hash codes (m, 16) uint8 and positives (m, C) bool of the distinct images with a positive.

    A code is a keyed hash of the raw pixels, before augmentation; codes are sorted. Without the
    clients' secret, a code cannot be matched to an image.
    """
    if not data.secret:
        raise UserError(
            f"client {data.name!r} has no secret: images are compared by keyed hashes, whose key "
            "all clients share and the server does not know; give all clients the same secret"
        )
    positives = data.positives()
    found: dict[bytes, Tensor] = {}
    for rows in positives.any(1).nonzero().flatten().split(CHUNK):
        for row, pixels in zip(rows.tolist(), data.pixels(rows).cpu().numpy()):
            code = hmac.digest(data.secret, pixels.tobytes(), "sha256")[:CODE_BYTES]
            found[code] = found.get(code, NO_POSITIVES) | positives[row]
    codes = [list(code) for code in sorted(found)]
    return {
        "codes": torch.tensor(codes, dtype=torch.uint8).reshape(-1, CODE_BYTES),
        "positives": _stacked(found, positives.shape[1]),
    }


def joint_counts(answers: Iterable[Mapping[str, Tensor]], class_count: int) -> Tensor:
    """(C, C) int64: the number of images positive for both classes, at one client or two.

    The diagonal holds the number of distinct images of each class.
    """
    found: dict[bytes, Tensor] = {}
    for answer in answers:
        for code, positives in zip(answer["codes"].numpy(), answer["positives"]):
            found[code.tobytes()] = found.get(code.tobytes(), NO_POSITIVES) | positives
    table = _stacked(found, class_count).to(torch.int64)  # (images, C)
    return table.T @ table


def correlation_of(counts: Tensor, rule: Correlation) -> Tensor:
    """(C, C) in 0..1 from joint counts; 0 on the diagonal and for a class without images.

    ``overlap``: shared images divided by the images of the rarer class. ``conditional``: the mean
    of the two conditional probabilities, of each class given the other.
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
