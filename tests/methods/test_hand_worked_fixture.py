"""The numeric fixture of the method cards, section 6, through the methods' own losses.

Two images, three classes, of which 0 and 2 are annotated; positives weigh 4, 1 and 2. Elements:
2.2174210, 0.3132617, 2.1269280 and 0.4740770, 1.1031860, 1.3862944. The mean over all of them is
1.2701947, over the annotated ones 1.5511801.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from support.logit_client import batch_of, client_of, holding
from support.tiny_federation import make_method
from torch import Tensor, tensor

from fedquilt.training.method import Local

LOGITS = tensor([[0.3, -1.0, 2.0], [-0.5, 0.7, 0.0]])
LABELS = tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
KNOWN = tensor([[True, False, True], [True, False, True]])
WEIGHT = tensor([4.0, 1.0, 2.0])
ALL, ANNOTATED = 1.2701947, 1.5511801


def _loss(name: str, stored: Tensor = LABELS, **settings: object) -> tuple[float, Local]:
    """Of the first round, both views alike, and what the client was; the gradient is taken."""
    method = make_method(name, **settings)
    local = client_of(
        *(method, holding(stored, KNOWN), *[LOGITS] * 2),
        teacher=torch.full_like(LOGITS, 9.0),
        positive_weight=WEIGHT,
    )
    local.state = method.begin(local)
    drawn = method.sample_noise(2, 3, local.generator)
    loss = method.loss(local, replace(batch_of(stored, KNOWN, views=2), drawn=drawn))
    loss.backward()
    return loss.item(), local


def _gradient(local: Local) -> Tensor:
    return sum(view.grad for view in local.model.logits if view.grad is not None)  # type: ignore


BLANK_IS_ZERO = [
    ("fedavg", {}, ALL),
    ("fedrs", {"alpha": 1.0}, ALL),
    ("fedlsr", {"sharpening": 1.0}, ALL),  # round 0: nothing of the divergence yet
]
PARTIAL = [
    ("fedavg-pl", {}, ANNOTATED),
    ("fedprox", {"mu": 0.0}, ANNOTATED),
    ("moon", {}, ANNOTATED),  # no model of an earlier round
    ("fedpu", {}, ANNOTATED),  # no class of positives only
    ("fedfixmatch", {"strength": 0.0}, ANNOTATED),
    ("fedfixmatch", {"threshold": 0.8}, ANNOTATED),  # 0.2689 and 0.6682 are not sure
    ("fssl", {"strength": 0.0}, ANNOTATED),
    ("fednoro", {"distillation": 0.0, "logit_adjustment": False}, ANNOTATED),
    ("fedvls", {"distillation": 0.0, "suppression": 0.0}, ANNOTATED),  # prevalence 1/2: no shift
    ("cbafed", {}, ANNOTATED),  # warm-up
    ("fedirm", {}, 2 * ANNOTATED),  # warm-up: both views are summed
    ("surgical-aggregation", {}, ANNOTATED),
    ("flexible-fl", {}, ANNOTATED),
]


@pytest.mark.parametrize(("name", "settings", "expected"), BLANK_IS_ZERO + PARTIAL)
def test_fixture(name: str, settings: dict[str, object], expected: float) -> None:
    assert _loss(name, **settings)[0] == pytest.approx(expected, abs=1e-6)


def test_fedrs_damps_the_blank_class() -> None:
    # Class 1 at half its logits: softplus(-0.5) = 0.4740770 and softplus(0.35) = 0.8833796 (for
    # 0.3132617 and 1.1031860). (2.2174210 + 0.4740770 + 2.1269280 + 0.4740770 + 0.8833796
    # + 1.3862944) / 6 = 1.2603628
    assert _loss("fedrs", alpha=0.5)[0] == pytest.approx(1.2603628, abs=1e-6)


@pytest.mark.parametrize(("name", "settings", "expected"), PARTIAL)
def test_a_blank_label_that_is_flipped_changes_neither_loss_nor_gradient(
    name: str, settings: dict[str, object], expected: float
) -> None:
    """And the blank class gets no gradient at all, to the bit."""
    flipped = torch.where(KNOWN, LABELS, 1 - LABELS)
    before, after = (_loss(name, stored, **settings) for stored in (LABELS, flipped))
    assert before[0] == after[0]
    assert torch.equal(_gradient(before[1]), _gradient(after[1]))
    assert _gradient(before[1])[:, 1].tolist() == [0.0, 0.0]
    assert bool((_gradient(before[1])[:, [0, 2]] != 0).all())


@pytest.mark.parametrize(("name", "settings", "expected"), BLANK_IS_ZERO)
def test_methods_that_take_a_blank_for_a_zero_push_its_logit_down(
    name: str, settings: dict[str, object], expected: float
) -> None:
    """By design; in the authors' code a stored label would do that, here the mask does."""
    # sigmoid(-1) / 6 and sigmoid(0.7) / 6
    push = _gradient(_loss(name, **settings)[1])[:, 1]
    assert push.tolist() == pytest.approx([0.0448236, 0.1113646], abs=1e-6)
