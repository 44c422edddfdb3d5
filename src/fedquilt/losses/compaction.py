"""Compaction: what a class finds where it is present looks like this class and no other."""

from __future__ import annotations

import torch
from torch import Tensor


def compaction(scores: Tensor) -> Tensor:
    """Per image and class, (B, C): -log of the own class's share in a softmax of scores (B, C, C).

    The second axis is the class that a feature was found for, the third the direction it is
    compared with.
    """
    return -torch.log_softmax(scores, -1).diagonal(dim1=1, dim2=2)
