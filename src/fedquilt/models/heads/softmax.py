"""The softmax head: classes that exclude each other, for images of one class each."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedquilt.core.errors import UserError
from fedquilt.models.heads.linear import build_head


class SoftmaxHead(nn.Linear):
    """A linear head whose logits are the log-odds of the classes' shares in a softmax.

    Whoever takes the sigmoid of a logit, as evaluation and prediction do, so gets the share.
    """

    def forward(self, features: Tensor) -> Tensor:
        return log_odds(super().forward(features))


def log_odds(scores: Tensor) -> Tensor:
    """(B, C): log(p / (1 - p)) of p = softmax(scores); it never overflows, as 1 - p would."""
    itself = torch.eye(scores.shape[1], dtype=torch.bool, device=scores.device)
    others = scores.float()[:, None].masked_fill(itself, -torch.inf)  # (B, C, C)
    return scores - others.logsumexp(2)


def build_softmax_head(feature_count: int, class_count: int, seed: int) -> SoftmaxHead:
    """The numbers of the linear head."""
    if class_count < 2:
        raise UserError(f"a softmax needs two classes or more, found {class_count}")
    plain = build_head(feature_count, class_count, seed)
    head = SoftmaxHead(feature_count, class_count, device="meta").to_empty(device="cpu")
    head.load_state_dict(plain.state_dict())
    return head
