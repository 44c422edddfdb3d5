"""Uncertainty of images with missing labels, and splitting images by it."""

from __future__ import annotations

import math

import pytest
import torch
from torch import tensor

from fedquilt.losses.pseudo_labels import by_uncertainty, uncertainty

NOTHING = tensor([[False]] * 2)


def test_both_entropies_of_the_card() -> None:
    # 0.9 and 0.1 are equally certain: 0.469 bit. One-sided: -0.9 ln 0.9 and -0.1 ln 0.1.
    logits = torch.logit(tensor([[0.9], [0.1]], dtype=torch.float64))
    assert uncertainty("binary", logits, NOTHING).tolist() == pytest.approx([0.469] * 2, abs=5e-5)
    one_sided = uncertainty("one_sided", logits, NOTHING).tolist()
    assert one_sided == pytest.approx([0.0948, 0.2303], abs=5e-5)


def test_only_missing_labels_count() -> None:
    known = tensor([[True, False, False], [True, False, True], [True, True, True]])
    logits = tensor([[3.0, 0.0, 900.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    # The second image has one missing label, at 1/2: 1 bit. The first has another, certain one.
    assert uncertainty("binary", logits, known).tolist() == pytest.approx([0.5, 1.0, 0.0])
    # One-sided over all three classes: (0.5 ln 2) / 3 in both.
    half = math.log(2) / 6
    assert uncertainty("one_sided", logits, known).tolist() == pytest.approx([half, half, 0.0])
    moved = torch.where(known, logits + 5, logits)
    for kind in ("binary", "one_sided"):
        found = uncertainty(kind, moved, known)
        assert torch.equal(found, uncertainty(kind, logits, known))


def test_single_label_images_use_the_entropy_over_all_classes() -> None:
    # The log-odds of probabilities: a quarter each, one class alone, two halves.
    logits = tensor([[-math.log(3)] * 4, [-900.0, 900.0, -900.0, -900.0], [0.0, 0.0, -900, -900]])
    found = uncertainty("softmax", logits, torch.ones(3, 4, dtype=torch.bool))
    assert found.tolist() == pytest.approx([1.0, 0.0, 0.5])  # ln 2 / ln 4


@pytest.mark.parametrize(
    ("count", "uncertain", "certain", "sizes"),
    [
        (10, 3, 4, (3, 4)),
        (7, 3, 4, (3, 4)),
        (10, 500, 2000, (2, 8)),  # a fifth and four fifths
        (12, 500, 2000, (2, 9)),  # rounded down; one is in between
        (4, 500, 2000, (0, 3)),
        (5, 0, 0, (0, 0)),
    ],
)
def test_the_groups_do_not_overlap_and_shrink_by_the_same_factor(
    count: int, uncertain: int, certain: int, sizes: tuple[int, int]
) -> None:
    scores = torch.rand(count, generator=torch.Generator().manual_seed(count))
    most, least, between = by_uncertainty(scores, uncertain, certain)
    assert (len(most), len(least)) == sizes
    assert sorted(torch.cat((most, least, between)).tolist()) == list(range(count))
    ranked = scores[torch.cat((least, between, most))]
    assert torch.equal(ranked, scores.sort().values)
