"""A teacher: weights that follow a network in training at a distance."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn

from fedquilt.models.network import Output
from fedquilt.tree import Weights


def follow(
    teacher: Weights, network: nn.Module, decay: float | Tensor, copied: Collection[str] = ()
) -> Weights:
    """``decay`` of the old teacher and the rest of the network, batch-norm statistics included.

    A teacher with its own weights but somebody else's statistics would be neither of the two.
    Entries that are ``copied`` are the network's all the same, as FixMatch has its statistics.
    """
    entries = dict(network.named_parameters()) | dict(network.named_buffers())
    with torch.no_grad():
        return {
            name: entries[name].detach().clone()
            if name in copied
            else decay * old + (1 - decay) * entries[name].detach()
            for name, old in teacher.items()
        }


def training_mode_output(network: nn.Module, teacher: Weights, images: Tensor) -> Output:
    """What the teacher says by the batch's own statistics; ``network`` must be in training mode.

    Statistics are lent as copies: batch norm writes into them.
    """
    parameters = dict(network.named_parameters())
    lent = {name: value if name in parameters else value.clone() for name, value in teacher.items()}
    with torch.no_grad():
        output: Output = torch.func.functional_call(network, lent, (images,))
    return output
