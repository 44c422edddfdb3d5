"""Every image in one scene, and all scenes in use: the entropy loss of learnt scenes."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def scene_entropy(scores: Tensor) -> Tensor:
    """From scores (B, S): the images' mean entropy, plus what the batch's mean lacks to log S.

    It is 0 where every image is sure of its scene and all S scenes are taken equally often.
    """
    logarithms = torch.log_softmax(scores, dim=1)
    shares = logarithms.exp()
    unsure = -(shares * logarithms).sum(1).mean()
    taken = shares.mean(0)
    spread = -(taken * taken.clamp(min=torch.finfo(taken.dtype).tiny).log()).sum()
    return unsure + math.log(scores.shape[1]) - spread
