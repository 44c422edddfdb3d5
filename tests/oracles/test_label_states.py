"""Label states: statistics of the draws, masking and losses against hand-computed numbers."""

from __future__ import annotations

import math

import pytest
import torch
from torch import tensor

from fedquilt.losses.label_states import (
    NEGATIVE,
    POSITIVE,
    UNKNOWN,
    draw_revealed,
    hidden_label_bce,
    label_states,
    mask_uncertain,
)

IMAGES = 13_000


def _revealed(class_count: int, share: float = 0.75) -> torch.Tensor:
    return draw_revealed(IMAGES, class_count, share, torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("class_count", "most"),
    [(17, 12), (4, 3), (3, 2), (1, 0)],  # floor of 12.75, 3, 2.25, 0.75
)
def test_at_most_three_quarters_of_the_labels_are_revealed(class_count: int, most: int) -> None:
    counts = _revealed(class_count).sum(1)
    assert counts.min() == 0
    assert counts.max() == most


def test_the_number_and_the_choice_of_labels_are_uniform() -> None:
    revealed = _revealed(17)
    # 13 numbers, 1000 images expected of each: standard deviation sqrt(13000/13 * 12/13) = 30.4.
    assert torch.bincount(revealed.sum(1)).tolist() == pytest.approx([1000] * 13, abs=4 * 30.4)
    # Probability p = 6 / 17 for each label: standard deviation sqrt(p (1 - p) / n) = 0.0042.
    assert revealed.float().mean(0).tolist() == pytest.approx([6 / 17] * 17, abs=4 * 0.0042)


def test_a_share_of_a_whole_number_is_not_rounded_down() -> None:
    assert 0.29 * 100 < 29  # in floating point
    assert _revealed(100, 0.29).sum(1).max() == 29
    assert not _revealed(5, 0.0).any()


def test_states_of_revealed_and_hidden_labels() -> None:
    labels = tensor([[1.0, 0.0, 1.0, 7.0]])
    revealed = tensor([[True, True, False, False]])
    assert label_states(labels, revealed).tolist() == [[POSITIVE, NEGATIVE, UNKNOWN, UNKNOWN]]


STATES = tensor([[POSITIVE, NEGATIVE, POSITIVE, UNKNOWN, NEGATIVE]], dtype=torch.int8)
PROBABILITIES = tensor([[0.5, 0.51, 0.47, 0.5, 0.53]])


@pytest.mark.parametrize(
    ("margin", "left"),
    [
        (0.0, [UNKNOWN, NEGATIVE, POSITIVE, UNKNOWN, NEGATIVE]),  # exactly one half, and no other
        (0.02, [UNKNOWN, UNKNOWN, POSITIVE, UNKNOWN, NEGATIVE]),  # 0.48 to 0.52
        (0.5, [UNKNOWN] * 5),
    ],
)
def test_uncertain_labels_become_unknown(margin: float, left: list[int]) -> None:
    assert mask_uncertain(STATES, PROBABILITIES, 0.5, margin).tolist() == [left]


def test_a_margin_of_one_half_masks_every_label() -> None:
    probabilities = torch.sigmoid(tensor([[200.0, -200.0, 9.0, -9.0, 0.0]]))
    assert probabilities[0, :2].tolist() == [1.0, 0.0]  # to the last bit
    assert mask_uncertain(STATES, probabilities, 0.5, 0.5).tolist() == [[UNKNOWN] * 5]
    assert mask_uncertain(STATES, probabilities, 0.5, 0.49)[0, :2].tolist() == [POSITIVE, NEGATIVE]


def test_no_further_label_is_revealed() -> None:
    draws = torch.Generator().manual_seed(1)
    states = torch.randint(-1, 2, (500, 7), generator=draws).to(torch.int8)
    probabilities = torch.rand(500, 7, generator=draws)
    after = mask_uncertain(states, probabilities, 0.5, 0.1)
    changed = after != states
    assert bool(changed.any())
    assert set(after[changed].tolist()) == {UNKNOWN}


def test_the_sum_over_hidden_labels_by_hand() -> None:
    # Logit 0 costs ln 2 = 0.6931472; logit 1 of a positive ln(1 + 1/e) = 0.3132617. The first
    # image's second label is revealed, its third is not annotated.
    logits = tensor([[0.0, 5.0, 9.0], [1.0, 0.0, 0.0]])
    labels = tensor([[1.0, 0.0, 7.0], [1.0, 0.0, 1.0]])
    known = tensor([[True, True, False], [True, True, True]])
    revealed = tensor([[False, True, False], [False, False, False]])
    found = hidden_label_bce(logits, labels, known, label_states(labels, revealed & known))
    assert found.item() == pytest.approx(3 * math.log(2) + 0.3132617, rel=1e-6)
    weighted = hidden_label_bce(
        logits, labels, known, label_states(labels, revealed & known), tensor([3.0, 1.0, 1.0])
    )
    assert weighted.item() == pytest.approx(5 * math.log(2) + 3 * 0.3132617, rel=1e-6)


def test_revealed_and_unannotated_labels_have_no_gradient() -> None:
    draws = torch.Generator().manual_seed(2)
    logits = torch.randn(6, 5, generator=draws, requires_grad=True)
    labels = (torch.rand(6, 5, generator=draws) < 0.5).float()
    known = torch.rand(6, 5, generator=draws) < 0.7
    revealed = torch.rand(6, 5, generator=draws) < 0.5
    hidden_label_bce(logits, labels, known, label_states(labels, revealed & known)).backward()
    assert logits.grad is not None
    hidden = known & ~revealed
    assert not logits.grad[~hidden].any()
    # Elsewhere the gradient of the sum is each entry's own: sigmoid(z) - y.
    expected = torch.sigmoid(logits.detach()) - labels
    torch.testing.assert_close(logits.grad[hidden], expected[hidden])


def test_without_hidden_labels_the_loss_is_0() -> None:
    logits = torch.full((2, 2), 50.0, requires_grad=True)
    labels, known = torch.zeros(2, 2), torch.ones(2, 2, dtype=torch.bool)
    loss = hidden_label_bce(logits, labels, known, label_states(labels, known))
    loss.backward()
    assert loss.item() == 0
    assert logits.grad is not None
    assert not logits.grad.any()
