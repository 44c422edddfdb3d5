"""Soft targets, their losses and MixUp against hand-computed numbers."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, tensor

from fedquilt.losses.pseudo_labels import NO_TAG
from fedquilt.losses.soft_targets import Targets, beta_share, make_targets, mix, weighted_mean

LIMITS = (0.01, 0.85)
LN2 = math.log(2)


def logit(*rows: list[float]) -> Tensor:
    return torch.logit(tensor(rows))


def test_a_missing_label_is_filled_in_at_the_thresholds_and_beyond() -> None:
    known = tensor([[True, False, False, False, False]])
    labels = tensor([[0.0, 9.0, 9.0, 9.0, 9.0]])  # labels that are not known must not be read
    teacher = logit([0.99, 0.86, 0.84, 0.011, 0.009])
    targets = make_targets("multi", labels, known, teacher, LIMITS)
    assert targets.valid.tolist() == [[True, True, False, False, True]]
    assert targets.is_pseudo.tolist() == [[False, True, False, False, True]]
    assert targets.targets[0].tolist() == pytest.approx([0.0, 1.0, 0.84, 0.011, 0.0], abs=1e-6)
    assert targets.tags().tolist() == [[NO_TAG, 1, NO_TAG, NO_TAG, 0]]
    assert targets.positive_counts().tolist() == [0, 1, 0, 0, 0]
    edge = make_targets("multi", labels[:, 1:2], known[:, 1:2], tensor([[0.0]]), (0.0, 0.5))
    assert edge.targets.tolist() == [[1.0]]  # at the threshold itself
    edge = make_targets("multi", labels[:, 1:2], known[:, 1:2], tensor([[0.0]]), (0.5, 0.9))
    assert (edge.targets.tolist(), edge.valid.tolist()) == ([[0.0]], [[True]])  # the lower one


KNOWN = tensor([[True, True, False]] * 4)
# Labelled; unlabelled and confident; unlabelled and not confident; confident of an annotated 0.
ONE_HOT = tensor([[1.0, 0, 9], [0.0, 0, 9], [0.0, 0, 9], [0.0, 0, 9]])
TEACHER = logit([0.01, 0.01, 0.98], [0.02, 0.02, 0.96], [0.1, 0.2, 0.7], [0.98, 0.01, 0.01])


def test_an_unlabelled_image_gets_its_most_likely_class() -> None:
    targets = make_targets("single", ONE_HOT, KNOWN, TEACHER, (0.01, 0.95))
    assert targets.targets.tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]]
    assert targets.valid.tolist() == [[True] * 3, [True] * 3, [False] * 3, [False] * 3]
    assert targets.is_pseudo.tolist() == [[False] * 3, [False, False, True], *[[False] * 3] * 2]
    lenient = make_targets("single", ONE_HOT, KNOWN, TEACHER, (0.01, 0.7))
    assert lenient.targets[2].tolist() == [0, 0, 1]


def test_the_teacher_gets_no_gradient() -> None:
    for kind in ("multi", "single"):
        teacher = TEACHER.clone().requires_grad_()
        targets = make_targets(kind, ONE_HOT, KNOWN, teacher, LIMITS)
        assert not targets.targets.requires_grad


def test_mask_before_or_after_the_mean() -> None:
    entries, mask = tensor([[0.1, 2.0], [0.3, 0.4]]), tensor([[1.0, 0.0], [1.0, 1.0]])
    # By entry: (0.1 + 0 + 0.3 + 0.4) / 4; otherwise 2.8 / 4 times 3 / 4.
    assert weighted_mean(entries, mask, by_entry=True).item() == pytest.approx(0.2)
    assert weighted_mean(entries, mask, by_entry=False).item() == pytest.approx(0.525)


@pytest.mark.parametrize(
    ("weighed", "expected"),
    [
        # Targets 1, 0 valid; the third, 0.25 at a logit of ln 3, is not: softplus - 0.25 ln 3.
        ("positives", (5 * LN2 + LN2) / 3),
        ("entries", (5 * LN2 + 2 * LN2) / 3),
        ("mean", (2 * LN2 + math.log(4) - 0.25 * math.log(3)) / 3 * (5 + 2) / 3),
    ],
)
def test_what_class_weights_multiply(weighed: str, expected: float) -> None:
    valid = tensor([[True, True, False]])
    targets = Targets(tensor([[1.0, 0.0, 0.25]]), valid, ~valid)
    logits = tensor([[0.0, 0.0, math.log(3)]], requires_grad=True)
    loss = targets.loss("multi", logits, tensor([5.0, 2.0, 7.0]), weighed)
    loss.backward()
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    assert logits.grad is not None
    assert (logits.grad[0, 2].item() != 0) == (weighed == "mean")  # invalid targets train


def test_cross_entropy_is_a_mean_over_all_images() -> None:
    valid = tensor([[True] * 3, [False] * 3])
    targets = Targets(tensor([[0.25, 0.75, 0.0], [1.0, 0.0, 0.0]]), valid, ~valid)
    logits = logit([0.5, 0.125, 0.375], [0.2, 0.4, 0.4])
    # -0.25 ln 0.5 * 4 - 0.75 ln 0.125 = (1 + 2.25) ln 2, and nothing from the second image.
    loss = targets.loss("single", logits, tensor([4.0, 1.0, 1.0]), "positives")
    assert loss.item() == pytest.approx(3.25 * LN2 / 2, rel=1e-6)


def test_a_share_of_one_is_the_first_image_and_its_labels() -> None:
    generator = torch.Generator().manual_seed(0)
    one, two = torch.randn(2, 2, 1, 3, 3, generator=generator)
    assert torch.equal(mix(one, two, tensor(1.0)), one)
    assert torch.equal(mix(one, two, tensor(0.0)), two)
    first = make_targets("single", ONE_HOT, KNOWN, TEACHER, LIMITS)
    other = make_targets("single", ONE_HOT.flip(0), KNOWN, TEACHER.flip(0), LIMITS)
    whole = first.mixed(other, tensor(1.0))
    assert torch.equal(whole.targets, first.targets)
    # Two images of four have a target, and each is mixed with one that has none.
    assert whole.valid[:, 0].tolist() == [False, False, False, False]
    assert first.mixed(first, tensor(0.3)).valid.tolist() == first.valid.tolist()


def test_shares_follow_a_beta_distribution_and_depend_on_the_generator_only() -> None:
    def shares(seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.stack([beta_share(0.2, generator) for _ in range(2000)])

    found = shares(0)
    torch.rand(3)  # the global generator does not matter
    assert torch.equal(found, shares(0))
    assert not torch.equal(found, shares(1))
    assert found.dtype == torch.float32
    # Of Beta(a, a): mean 1/2, variance 1 / (4 (2 a + 1)) = 0.17857; 2000 draws, 4 deviations.
    assert found.mean().item() == pytest.approx(0.5, abs=0.04)
    assert found.var().item() == pytest.approx(0.17857, abs=0.01)
