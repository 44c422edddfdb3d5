"""A teacher: weights that follow a network in training at a distance."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedquilt.tree import Weights


def follow(teacher: Weights, network: nn.Module, decay: float | Tensor) -> Weights:
    """``decay`` of the old teacher and the rest of the network, batch-norm statistics included.

    A teacher with its own weights but somebody else's statistics would be neither of the two.
    """
    entries = dict(network.named_parameters()) | dict(network.named_buffers())
    with torch.no_grad():
        return {
            name: decay * old + (1 - decay) * entries[name].detach()
            for name, old in teacher.items()
        }
