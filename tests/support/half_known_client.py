"""A client of FedLSM with half of its labels."""

from __future__ import annotations

from support.pixel_logits import make_local
from torch import Tensor, tensor

from fedquilt.training.method import Local, Method

HALF_KNOWN = tensor([[True, False]] * 2)
LABELS = tensor([[1, 9], [0, 9]])  # the nines must not be read
WEIGHT = tensor([3.0, 1.0])


def half_known_client(
    method: Method, known: Tensor = HALF_KNOWN, labels: Tensor = LABELS, weight: Tensor = WEIGHT
) -> Local:
    local = make_local(method, known, labels, class_weight=weight)
    local.state = method.begin(local)
    return local
