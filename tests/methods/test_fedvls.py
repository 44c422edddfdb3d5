"""FedVLS: calibration, distillation of vacant classes and suppression, by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from logit_client import batch_of, client_of, holding
from tiny_federation import make_federation, make_method
from torch import tensor

from fedquilt.losses.binary import masked_bce
from fedquilt.methods.fedvls import FedVLS
from fedquilt.tree import same_bits

# Class 0 has positives, class 1 is annotated without any, class 2 is not annotated.
LABELS = tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
KNOWN = tensor([[True, True, False], [True, True, False]])
LOGITS = tensor([[0.3, -1.0, 2.0], [-0.5, 0.7, 0.0]])
BARE = FedVLS(distillation=0.0, suppression=0.0)


def _loss(method: FedVLS, logits: torch.Tensor = LOGITS, **client: torch.Tensor) -> torch.Tensor:
    local = client_of(method, holding(LABELS, KNOWN), logits, **client)
    return method.loss(local, batch_of(LABELS, KNOWN))


def test_vacant_are_classes_without_an_annotated_positive() -> None:
    state = FedVLS().init_client(holding(LABELS, KNOWN))
    assert state["vacant"].tolist() == [False, True, True]
    assert state["prior"].tolist() == [0.5, 0.25, 0.25]  # 1 of 2; 0 of 2 kept off 0 by 1 / (2 + 2)


def test_at_a_prior_of_one_half_and_without_extras_it_is_the_plain_loss() -> None:
    supervised = tensor([[True, False, False], [True, False, False]])
    assert _loss(BARE).item() == masked_bce(LOGITS, LABELS, supervised).item()


def test_the_prior_calibrates_while_training() -> None:
    # pi = 0.2: z - ln 4
    found = _loss(BARE, prior=tensor([0.2, 0.5, 0.5])).item()
    present = math.log1p(math.exp(-(0.3 - math.log(4))))
    absent = math.log1p(math.exp(-0.5 - math.log(4)))
    assert found == pytest.approx((present + absent) / 2)
    plain = _loss(replace(BARE, calibration=False), prior=tensor([0.2, 0.5, 0.5]))
    assert plain.item() == _loss(BARE).item()


def test_vacant_classes_are_held_to_the_received_model() -> None:
    # KL(1/2 || q) = -ln(4 q (1 - q)) / 2 for the four vacant entries, teacher at 0.
    q = torch.sigmoid(LOGITS[:, 1:])
    held = (-(4 * q * (1 - q)).log() / 2).mean().item()
    method = replace(BARE, distillation=0.1)
    extra = _loss(method, teacher=torch.zeros(2, 3)) - _loss(BARE)
    assert extra.item() == pytest.approx(0.1 * held, rel=1e-4)
    assert _loss(method, teacher=LOGITS).item() == _loss(BARE).item()


def test_a_single_vacant_class_is_held_too() -> None:
    """A softmax over one class would be blind to it."""
    labels, known = tensor([[1.0, 0.0]]), tensor([[True, False]])
    method = replace(BARE, distillation=1.0)
    losses = [
        method.loss(
            client_of(
                method, holding(labels, known), tensor([[0.0, z]]), teacher=torch.zeros(1, 2)
            ),
            batch_of(labels, known),
        ).item()
        for z in (0.0, 3.0)
    ]
    assert losses[1] > losses[0] + 0.5


def test_suppression_of_negatives() -> None:
    # Class 0, pi = 1/2, one negative with z = -0.5 among two images: ln(e^-0.5 / 0.5) - ln 2 = -0.5
    extra = _loss(replace(BARE, suppression=0.005)) - _loss(BARE)
    assert extra.item() == pytest.approx(0.005 * 0.5 * -0.5, rel=1e-3)


def test_with_everything_off_it_is_fedavg_pl_bit_for_bit() -> None:
    federation = make_federation()
    off = {"calibration": False, "distillation": 0.0, "suppression": 0.0}
    plain = federation.train(make_method("fedavg-pl", positive_weight="none"))
    assert same_bits(federation.train(make_method("fedvls", **off)), plain)
    for switch, on in (("calibration", True), ("distillation", 1.0), ("suppression", 0.1)):
        changed = make_method("fedvls", **{**off, switch: on})
        assert not same_bits(federation.train(changed), plain), switch


def test_without_a_vacant_class_nothing_is_distilled() -> None:
    federation = make_federation(annotated=((0, 1, 2), (0, 1, 2)))
    strong, none = (make_method("fedvls", distillation=strength) for strength in (9.0, 0.0))
    assert same_bits(federation.train(strong), federation.train(none))
