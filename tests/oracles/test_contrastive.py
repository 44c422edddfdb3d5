"""Rejection and compaction: the method card's example, a plain loop, and invariances."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, tensor

from fedquilt.losses.contrastive import compaction, hinge_rejection, most_confident, rejection
from fedquilt.losses.cross_entropy import mean_of_image_means, mean_of_image_sums

# C = d = 3, frame sqrt(3/2) (I - 1/3), features e1, 2 e2 and -e3, of which only class 0 is present.
# With a = 0.8164966 and b = -0.4082483 the scores are (a, b, b), (2b, 2a, 2b) and (-b, -b, -a).
A, B = math.sqrt(2 / 3), -math.sqrt(1 / 6)
SCORES = tensor([[[A, B, B], [2 * B, 2 * A, 2 * B], [-B, -B, -A]]], dtype=torch.float64)
PRESENT = tensor([[True, False, False]])


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


def test_probabilities_of_the_card():
    expected = [
        [0.69349, 0.39933, 0.39933],
        [0.30651, 0.83658, 0.30651],
        [0.60067, 0.60067, 0.30651],
    ]
    assert np.allclose(torch.sigmoid(SCORES[0]).numpy(), expected, atol=5e-6)


def test_rejection_of_the_card():
    # Class 1: -log(1 - 0.30651) twice, their mean; class 2: -log(1 - 0.60067); mean of the two
    found = mean_of_image_means(rejection(SCORES, 0.3), ~PRESENT).item()
    assert found == pytest.approx((-math.log(1 - sigmoid(2 * B)) - math.log(1 - sigmoid(-B))) / 2)
    assert found == pytest.approx(0.641988, abs=5e-7)


def test_compaction_of_the_card():
    # Class 0: log(1 + 2 e^(b - a))
    found = mean_of_image_means(compaction(SCORES), PRESENT).item()
    assert found == pytest.approx(math.log1p(2 * math.exp(B - A)))
    assert found == pytest.approx(0.462265, abs=5e-7)


def test_hinge_of_the_card():
    # 0.83658 - 0.3 for class 1, by its own vector, and 0.60067 - 0.3 for class 2
    found = mean_of_image_sums(hinge_rejection(SCORES, 0.3), ~PRESENT).item()
    assert found == pytest.approx(0.837247, abs=5e-7)


def test_cosines_of_the_card():
    # The first feature has length 1, so its cosines are its scores: log(1 + 2 e^((b - a) / 0.07))
    found = mean_of_image_sums(compaction(SCORES / 0.07), PRESENT).item()
    assert found == pytest.approx(5.04e-8, rel=1e-3)


@pytest.mark.parametrize("seed", range(4))
def test_losses_equal_a_plain_loop(seed):
    scores, positives, negatives = random_case(seed)
    expected = [loop(scores, positives, negatives, image) for image in range(len(scores))]
    neg, pos = np.mean(expected, axis=0)
    found_neg = mean_of_image_means(rejection(scores, 0.3), negatives).item()
    found_pos = mean_of_image_means(compaction(scores), positives).item()
    assert found_neg == pytest.approx(neg, rel=1e-5)
    assert found_pos == pytest.approx(pos, rel=1e-5)


def random_case(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(9, 4, 4, generator=generator)
    labels, known = (torch.rand(9, 4, generator=generator) < 0.5 for _ in range(2))
    return scores, labels & known, ~labels & known


def loop(scores: Tensor, positives: Tensor, negatives: Tensor, image: int) -> tuple[float, float]:
    """One image's rejection and compaction, entry by entry."""
    neg, pos = [], []
    for own in range(4):
        row = [float(score) for score in scores[image, own]]
        if negatives[image, own]:
            others = [
                -math.log(1 - sigmoid(z))
                for r, z in enumerate(row)
                if r != own and sigmoid(z) > 0.3
            ]
            neg.append(sum(others) / 3)
        if positives[image, own]:
            pos.append(-row[own] + math.log(sum(map(math.exp, row))))
    return (sum(neg) / max(len(neg), 1), sum(pos) / max(len(pos), 1))


@pytest.mark.parametrize("threshold", [1.0, 2.0])
def test_above_a_threshold_of_one_nothing_is_rejected(threshold):
    assert not rejection(SCORES, threshold).any()


def test_at_a_threshold_of_zero_every_pair_counts():
    # all six pairs of different classes: softplus(b) twice, softplus(2b) twice, softplus(-b) twice
    pairs = [math.log1p(math.exp(z)) for z in (B, 2 * B, -B)]
    assert rejection(SCORES, 0.0)[0].tolist() == pytest.approx(pairs)


def test_rejection_ignores_the_own_class():
    scores = SCORES.clone()
    scores[0].fill_diagonal_(50.0)
    assert torch.equal(rejection(scores, 0.3), rejection(SCORES, 0.3))


def test_only_scores_above_the_threshold_get_a_gradient():
    scores = SCORES.clone().requires_grad_()
    mean_of_image_means(rejection(scores, 0.5), ~PRESENT).backward()
    # Counted: -e3 against classes 0 and 1, 0.60067 each; derivative sigmoid / 2 pairs / 2 classes
    counted = tensor([[[0.0, 0, 0], [0, 0, 0], [1, 1, 0]]], dtype=torch.float64)
    assert torch.allclose(scores.grad, counted * sigmoid(-B) / 4)


@pytest.mark.parametrize("average", [mean_of_image_means, mean_of_image_sums])
def test_an_image_without_entries_adds_0_and_still_counts(average):
    values = tensor([[2.0, 4.0], [math.nan, math.inf]], requires_grad=True)
    mask = tensor([[True, True], [False, False]])
    found = average(values, mask)
    found.backward()
    assert found.item() == (1.5 if average is mean_of_image_means else 3.0)  # (3 or 6, and 0) / 2
    assert values.grad[1].tolist() == [0.0, 0.0]
    assert average(values.detach(), torch.zeros_like(mask)).item() == 0.0


def test_extreme_scores_stay_finite():
    scores = torch.full((1, 2, 2), 1e4).requires_grad_()
    total = (
        rejection(scores, 0.3).sum() + compaction(scores).sum() + hinge_rejection(scores, 0.3).sum()
    )
    total.backward()
    assert bool(scores.grad.isfinite().all())
    assert rejection(scores, 0.3)[0, 0].item() == 1e4


def test_a_single_class_has_no_loss():
    assert rejection(torch.ones(2, 1, 1), 0.3).tolist() == [[0.0], [0.0]]
    assert compaction(torch.ones(2, 1, 1)).tolist() == [[0.0], [0.0]]


def test_the_most_confident_of_the_whole_batch_are_chosen():
    # highest scores: 5, 1 and 3, 4; the 5 is not a candidate
    scores = tensor([[[5.0, 0.0], [1.0, -2.0]], [[0.0, 3.0], [4.0, 4.0]]])
    candidates = tensor([[False, True], [True, True]])
    chosen = [most_confident(scores, candidates, tensor(count)) for count in (0, 1, 2, 3, 9)]
    assert [each.tolist() for each in chosen] == [
        [[False, False], [False, False]],
        [[False, False], [False, True]],
        [[False, False], [True, True]],
        candidates.tolist(),
        candidates.tolist(),
    ]
