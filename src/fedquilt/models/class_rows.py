"""Class rows on the unit sphere: gradient steps on them, and the rows one client receives."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from fedquilt.core.payload import PerClient
from fedquilt.core.seeding import generator_for
from fedquilt.core.tree import from_branch
from fedquilt.models.heads.sphere import on_sphere

EQUAL_WITHIN = 1e-6  # rows whose cosine is this close to 1 count as equal
CONVERGED = 1e-6  # stop if a step changes no value of a row by more
NUDGE = 1e-3  # length of the noise that separates equal rows


def minimize_on_sphere(
    rows: Tensor, penalty: Callable[[Tensor], Tensor], rate: float, steps: int
) -> Tensor:
    """Take gradient steps on a penalty of unit rows, normalised to length 1 after each step.

    Stops early once the rows have converged.
    """
    for _ in range(steps):
        with torch.enable_grad():
            current = rows.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(penalty(current), current)
        before, rows = rows, on_sphere(rows - rate * gradient)
        if bool(((rows - before).abs() < CONVERGED).all()):
            break
    return rows


def arrange_rows(
    rows: Tensor,
    seen: Tensor,
    correlation: Tensor,
    penalty: Callable[[Tensor, Tensor], Tensor],
    rate: float,
    steps: int,
) -> Tensor:
    """Minimise a penalty of the rows of ``seen`` classes, (C,) bool, and their correlation.

    The other rows are left unchanged and have no effect.
    """
    among_seen = correlation[seen][:, seen]
    new = rows.clone()
    start = separate_equal_rows(rows[seen], among_seen)
    new[seen] = minimize_on_sphere(start, lambda some: penalty(some, among_seen), rate, steps)
    return new


def separate_equal_rows(rows: Tensor, correlation: Tensor) -> Tensor:
    """Add a little noise to unit rows that are equal without being fully correlated.

    Two equal rows have the same gradient, so no step could separate them. The noise is the same
    in every call, so that a resumed run repeats it.
    """
    diagonal = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
    same = (rows @ rows.T > 1 - EQUAL_WITHIN) & (correlation < 1) & ~diagonal
    noise = torch.randn(rows.shape, generator=generator_for("coinciding rows")).to(rows)
    nudged = on_sphere(rows + NUDGE * on_sphere(noise))
    return torch.where(same.any(1, keepdim=True), nudged, rows)


def select_rows(rows: Tensor, owned: Tensor) -> dict[str, Tensor]:
    """Select the rows, of (C, d), to send to a client that owns these classes, (C,) bool."""
    return {"classes": owned, "rows": rows[owned]}


def own_rows(rows: Tensor, owned: Mapping[str, Tensor]) -> PerClient:
    """Address to each client the rows of the classes it owns, (C,) bool; none to other clients.

    The keys of ``owned`` are client names as :func:`as_branch` makes them.
    """
    own = {from_branch(name): select_rows(rows, classes) for name, classes in owned.items()}
    return PerClient(own, select_rows(rows, torch.zeros(len(rows), dtype=torch.bool)))


def scatter_rows(classes: Tensor, rows: Tensor) -> Tensor:
    """Put the rows of :func:`select_rows` back into (C, d); all other rows are zeros."""
    scattered = rows.new_zeros(len(classes), rows.shape[1])
    scattered[classes] = rows
    return scattered
