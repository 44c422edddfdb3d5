"""Class rows on the unit sphere: gradient steps there, and a client's share of them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fedquilt.core.seeding import generator_for
from fedquilt.models.heads.sphere import on_sphere

COINCIDE = 1e-6  # rows with a cosine this near 1 are the same
STILL = 1e-6  # steps that move no number of a row by more change nothing
NUDGE = 1e-3  # length of the noise that tells them apart


def descend(rows: Tensor, penalty: Callable[[Tensor], Tensor], rate: float, steps: int) -> Tensor:
    """Gradient steps on a penalty of unit rows, which are brought back to length 1 after each.

    Ends early where a step moves nothing to speak of.
    """
    for _ in range(steps):
        with torch.enable_grad():
            here = rows.detach().requires_grad_()
            (slope,) = torch.autograd.grad(penalty(here), here)
        before, rows = rows, on_sphere(rows - rate * slope)
        if bool(((rows - before).abs() < STILL).all()):
            break
    return rows


def rearranged(
    rows: Tensor,
    seen: Tensor,
    together: Tensor,
    penalty: Callable[[Tensor, Tensor], Tensor],
    rate: float,
    steps: int,
) -> Tensor:
    """Steps on a penalty of the rows of ``seen`` classes, (C,) bool, and their correlations.

    The other rows rest and have no say.
    """
    among = together[seen][:, seen]
    new = rows.clone()
    start = told_apart(rows[seen], among)
    new[seen] = descend(start, lambda some: penalty(some, among), rate, steps)
    return new


def told_apart(rows: Tensor, together: Tensor) -> Tensor:
    """Unit rows with a little noise on those that coincide without being fully correlated.

    The gradient of a penalty on two equal rows points along both, so no step could part them. The
    noise is the same at every call: a resumed run meets it again.
    """
    itself = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
    same = (rows @ rows.T > 1 - COINCIDE) & (together < 1) & ~itself
    noise = torch.randn(rows.shape, generator=generator_for("coinciding rows")).to(rows)
    nudged = on_sphere(rows + NUDGE * on_sphere(noise))
    return torch.where(same.any(1, keepdim=True), nudged, rows)


def own_rows(rows: Tensor, owned: Tensor) -> dict[str, Tensor]:
    """What a client that owns these classes, (C,) bool, may be sent of all rows, (C, d)."""
    return {"classes": owned, "rows": rows[owned]}


def among_zeros(classes: Tensor, rows: Tensor) -> Tensor:
    """(C, d): the rows of :func:`own_rows` in their places; all others are zeros."""
    everything = rows.new_zeros(len(classes), rows.shape[1])
    everything[classes] = rows
    return everything
