"""Group norm in place of batch norm, which mixes the images of a batch."""

from __future__ import annotations

import math

from torch import nn

MOST_GROUPS = 32
LEAST_CHANNELS = 4  # of a group


def with_group_norm(network: nn.Module) -> nn.Module:
    """Replace every 2-d batch norm by group norm, with the activation that timm puts behind it."""
    for name, child in network.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(network, name, _replacement(child))
        else:
            with_group_norm(child)
    return network


def _replacement(norm: nn.BatchNorm2d) -> nn.Module:
    groups = group_count(norm.num_features)
    new = nn.GroupNorm(groups, norm.num_features, norm.eps, affine=norm.affine)
    behind = [getattr(norm, name) for name in ("drop", "act") if hasattr(norm, name)]
    return nn.Sequential(new, *behind) if behind else new


def group_count(channels: int) -> int:
    groups = math.gcd(channels, MOST_GROUPS)
    while groups > 1 and channels // groups < LEAST_CHANNELS:
        groups //= 2
    return groups
