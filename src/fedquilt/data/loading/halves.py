"""Two halves of a client's images in which every class has as many positives, if it can."""

from __future__ import annotations

import torch
from torch import Tensor

from fedquilt.seeding import generator_for


def stratified_halves(positives: Tensor, *names: int | str) -> Tensor:
    """(n,) bool: the first half of images with these positives (n, C); drawn by the names.

    The rarest class is shared out first, images without a positive last. An odd one goes to the
    half that is behind.
    """
    generator = generator_for(*names, "halves")
    count = len(positives)
    first = torch.zeros(count, dtype=torch.bool)
    placed = torch.zeros(count, dtype=torch.bool)
    rarest_first = positives.sum(0).argsort(stable=True).tolist()
    groups = [positives[:, column] for column in rarest_first]
    for group in (*groups, torch.ones(count, dtype=torch.bool)):
        members = (group & ~placed).nonzero().flatten()
        members = members[torch.randperm(len(members), generator=generator)]
        lead = int((group & placed & ~first).sum()) - int((group & first).sum())
        behind = 2 * int(first.sum()) < int(placed.sum())
        share = (len(members) + lead + behind) // 2
        first[members[: max(share, 0)]] = True
        placed |= group
    return first
