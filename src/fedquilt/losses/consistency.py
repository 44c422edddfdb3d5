"""How far two models' probabilities lie apart, entry by entry."""

from __future__ import annotations

import torch
from torch import Tensor


def squared_gap(student: Tensor, teacher: Tensor) -> Tensor:
    """The squared difference of the probabilities; the teacher's logits get no gradient."""
    return (torch.sigmoid(student) - torch.sigmoid(teacher.detach())).square()
