"""The softmax head: mutually exclusive classes, for images of one class each."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedquilt.core.errors import UserError
from fedquilt.models.heads.linear import build_head


class SoftmaxHead(nn.Linear):
    """A linear head whose logits are the log-odds of softmax probabilities.

    So the sigmoid of a logit, which evaluation and prediction take, is the softmax probability.
    """

    def forward(self, features: Tensor) -> Tensor:
        return log_odds(super().forward(features))


def log_odds(scores: Tensor) -> Tensor:
    """(B, C): log(p / (1 - p)) of p = softmax(scores), finite even where 1 - p rounds to 0."""
    diagonal = torch.eye(scores.shape[1], dtype=torch.bool, device=scores.device)
    others = scores.float()[:, None].masked_fill(diagonal, -torch.inf)  # (B, C, C)
    return scores - others.logsumexp(2)


def build_softmax_head(feature_count: int, class_count: int, seed: int) -> SoftmaxHead:
    """Build the head with the initial weights of the linear head."""
    if class_count < 2:
        raise UserError(f"a softmax needs two classes or more, found {class_count}")
    plain = build_head(feature_count, class_count, seed)
    head = SoftmaxHead(feature_count, class_count, device="meta").to_empty(device="cpu")
    head.load_state_dict(plain.state_dict())
    return head
