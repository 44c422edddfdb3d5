"""The mixture of two predictions as a logit."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def mixed_logits(first: Tensor, second: Tensor, share: Tensor) -> Tensor:
    """The logit of share * sigmoid(first) + (1 - share) * sigmoid(second), for a share in 0..1.

    By logarithms of both sides: nothing has to be clamped, however sure the predictions are.
    """
    log_first, log_second = torch.log(share), torch.log1p(-share)
    present = torch.logaddexp(log_first + F.logsigmoid(first), log_second + F.logsigmoid(second))
    absent = torch.logaddexp(log_first + F.logsigmoid(-first), log_second + F.logsigmoid(-second))
    return present - absent
