"""Restricted logits: those of classes a client lacks are damped, and so is what they teach."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Restriction = Literal["annotated", "present", "frequency"]


def logit_scale(kind: Restriction, positives: Tensor, annotated: Tensor, alpha: float) -> Tensor:
    """Per class, the factor of its logit: 1 for a class the client has, alpha for one it lacks.

    A client has a class that it annotates (``annotated``), or of which it has an annotated
    positive (``present``). With ``frequency`` the factor grows from alpha to 1 with the number of
    positives, and is 1 for the most frequent class.
    """
    if kind == "frequency":
        owned = positives / positives.amax().clamp(min=1)
    else:
        owned = (annotated if kind == "annotated" else positives) > 0
    return (alpha + (1.0 - alpha) * owned).to(torch.float32)
