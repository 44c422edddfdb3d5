"""Entropy loss of learnt scenes: assign each image to one scene, and use all scenes."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def scene_entropy(scores: Tensor) -> Tensor:
    """Mean entropy of the images plus log S minus the entropy of the batch mean; scores are (B, S).

    It is 0 if every image is certain of its scene and all S scenes are used equally often.
    """
    log_shares = torch.log_softmax(scores, dim=1)
    shares = log_shares.exp()
    image_entropy = -(shares * log_shares).sum(1).mean()
    usage = shares.mean(0)
    usage_entropy = -(usage * usage.clamp(min=torch.finfo(usage.dtype).tiny).log()).sum()
    return image_entropy + math.log(scores.shape[1]) - usage_entropy
