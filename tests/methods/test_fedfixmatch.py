"""FedFixMatch: the gate, the loss and the degenerate cases of its card."""

from __future__ import annotations

import math

import pytest
import torch
from support.pixel_logits import make_batch, make_local, plain_federation
from support.tiny_federation import make_method
from torch import Tensor, tensor

from fedquilt.core.errors import UserError
from fedquilt.core.tree import same_bits
from fedquilt.methods.fedfixmatch import FedFixMatch

KNOWN = tensor([[True, False, False]] * 3)
LABELS = tensor([[1, 0, 0], [0, 0, 0], [0, 0, 0]])
# Class 0 is annotated; the other two columns are the card's probabilities.
WEAK = torch.logit(tensor([[0.5, 0.9, 0.1], [0.5, 0.9, 0.5], [0.5, 0.85, 0.95]]))
STRONG = tensor([[0.0, 1.0, 1.0], [0.0, 7.0, 7.0], [0.0, 1.0, -1.0]])


def _present(logit: float) -> float:
    return math.log1p(math.exp(-logit))


def test_gate_of_the_card_takes_samples_0_and_2() -> None:
    chosen = FedFixMatch().gated(WEAK, KNOWN)
    assert chosen.tolist() == [[False, True, True], [False, False, False], [False, True, True]]


def test_gate_by_entry_takes_the_confident_label_of_sample_1_too() -> None:
    chosen = FedFixMatch(gate="entry").gated(WEAK, KNOWN)
    assert chosen[1].tolist() == [False, True, False]
    assert chosen.sum().item() == 5


def test_loss_by_hand() -> None:
    method = FedFixMatch()
    local = make_local(method, KNOWN, LABELS)
    # Annotated: class 0 with logit 0 and labels 1, 0, 0; the positive weighs 3 images / 1 = 3,
    # so (3 + 1 + 1) ln 2 / 3. Missing, samples 0 and 2: labels 1, 0 and 1, 1 at the strong
    # logits 1, 1 and 1, -1; -1 is a present label of logit -1, and absent at 1 costs the same.
    supervised = 5 * math.log(2) / 3
    missing = (_present(1.0) + _present(-1.0) + _present(1.0) + _present(-1.0)) / 4
    assert method.loss(local, make_batch(local, WEAK, STRONG)).item() == pytest.approx(
        supervised + missing, rel=1e-6
    )


def test_pseudo_labels_carry_no_gradient() -> None:
    method = FedFixMatch()
    local = make_local(method, KNOWN, LABELS)

    def gradients(strength: float) -> tuple[Tensor, Tensor]:
        weak, strong = WEAK.clone().requires_grad_(), STRONG.clone().requires_grad_()
        chosen = FedFixMatch(strength=strength)
        chosen.loss(local, make_batch(local, weak, strong)).backward()
        assert weak.grad is not None
        assert strong.grad is not None
        return weak.grad, strong.grad

    with_labels, without = gradients(1.0), gradients(0.0)
    assert torch.equal(with_labels[0], without[0])
    assert with_labels[1].abs().sum() > 0
    assert bool((with_labels[1][1] == 0).all())  # the sample that did not pass the gate


def test_nothing_confident_leaves_the_annotated_labels() -> None:
    method = FedFixMatch()
    local = make_local(method, KNOWN, LABELS)
    loss = method.loss(local, make_batch(local, torch.zeros(3, 3), STRONG))
    assert loss.item() == pytest.approx(5 * math.log(2) / 3)


def test_never_confident_is_fedavg_pl_bit_for_bit() -> None:
    federation = plain_federation()
    partial = federation.train(make_method("fedavg-pl"))
    assert same_bits(federation.train(make_method("fedfixmatch", threshold=1.0)), partial)
    often = federation.train(make_method("fedfixmatch", threshold=0.5))
    assert not same_bits(often, partial)


def test_without_missing_labels_it_is_fedavg_bit_for_bit() -> None:
    federation = plain_federation(annotated=((0, 1, 2),) * 3)
    found = federation.train(make_method("fedfixmatch", threshold=0.5))
    assert same_bits(found, federation.train(make_method("fedavg")))


def test_a_threshold_that_would_be_both_is_refused() -> None:
    with pytest.raises(UserError, match=r"threshold must be in 0.5..1, found 0.4"):
        FedFixMatch(threshold=0.4)


def test_fedlsm_averages_head_rows_over_annotators() -> None:
    assert FedFixMatch(**FedFixMatch.variants["fedlsm"]).head_rows == "annotated"
