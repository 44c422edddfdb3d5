"""A teacher: weights that follow a network in training at a distance."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn

from fedquilt.core.tree import Weights, copies_of, write_all
from fedquilt.models.network import Output


def follow(
    teacher: Weights, network: nn.Module, decay: float | Tensor, copied: Collection[str] = ()
) -> Weights:
    """``decay`` of the old teacher and the rest of the network, batch-norm statistics included.

    The teacher is written over, to move less memory every step, so it must be a copy that the
    round may use up. A teacher with its own weights but somebody else's statistics would be neither
    of the two. Entries that are ``copied`` are the network's all the same, as FixMatch has its
    statistics.
    """
    entries = dict(network.named_parameters()) | dict(network.named_buffers())
    led = [name for name in teacher if name not in copied]
    lent = [name for name in teacher if name in copied]
    places, leaders = [teacher[name] for name in led], [entries[name].detach() for name in led]
    with torch.no_grad():  # all at once, or a GPU would be told of every tensor
        if isinstance(decay, Tensor):  # on a device, where nobody may wait for it
            torch._foreach_mul_(places, decay)
            torch._foreach_add_(places, torch._foreach_mul(leaders, 1 - decay))
        else:
            torch._foreach_lerp_(places, leaders, 1 - decay)
    write_all([teacher[name] for name in lent], [entries[name] for name in lent])
    return teacher


def training_mode_output(network: nn.Module, teacher: Weights, images: Tensor) -> Output:
    """What the teacher says by the batch's own statistics; ``network`` must be in training mode.

    Statistics are lent as copies: batch norm writes into them.
    """
    parameters = dict(network.named_parameters())
    statistics = [name for name in teacher if name not in parameters]
    copies = copies_of([teacher[name] for name in statistics])
    with torch.no_grad():
        output: Output = torch.func.functional_call(
            network, teacher | dict(zip(statistics, copies)), (images,)
        )
    return output
