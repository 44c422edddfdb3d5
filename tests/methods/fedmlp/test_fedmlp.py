"""FedMLP: the oracles and edge cases of its card, section (j)."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fedquilt.core.payload import Mean
from fedquilt.core.totals import Accumulator
from fedquilt.losses.class_prior import adjust_logits, clamp_prior
from fedquilt.losses.cross_entropy import elementwise_bce, masked_mean
from fedquilt.losses.prototypes import (
    absence_score,
    class_prototypes,
    decided_share,
    tag_missing_labels,
)
from fedquilt.losses.pseudo_labels import NO_TAG

SCORES = torch.tensor([0.30, 0.20, 0.10, 0.02, -0.01, -0.05, -0.20, -0.40])[:, None]


def _no_tags(count: int, classes: int = 1) -> Tensor:
    return torch.full((count, classes), NO_TAG, dtype=torch.int8)


# (j) 1 and 2: the prior in the logits


@pytest.mark.parametrize(("prior", "expected"), [(0.1, 0.2058823529), (0.5, 0.7), (1e-12, 0.0)])
def test_adjusted_probability(prior: float, expected: float) -> None:
    # 0.7 * 0.1 / (0.7 * 0.1 + 0.3 * 0.9) = 0.07 / 0.34
    logit = torch.tensor(math.log(0.7 / 0.3), dtype=torch.float64)
    adjusted = adjust_logits(logit, torch.tensor(prior, dtype=torch.float64))
    assert torch.sigmoid(adjusted).item() == pytest.approx(expected, abs=1e-9)


def test_weighted_partial_class_loss() -> None:
    # y = 0.7 with prior 0.1 is 0.20588: -ln 0.20588 = 1.58045; y = 0.4: -ln 0.6 = 0.51083.
    logits = torch.logit(torch.tensor([[0.7, 0.9, 0.4]])).requires_grad_()
    adjusted = adjust_logits(logits, torch.tensor([0.1, 0.3, 0.5]))
    losses = elementwise_bce(adjusted, torch.tensor([[1.0, 0.0, 0.0]]))
    assert losses[0, 0].item() == pytest.approx(1.58045, abs=1e-5)
    assert losses[0, 2].item() == pytest.approx(0.51083, abs=1e-5)
    loss = masked_mean(losses, torch.tensor([[True, False, True]]))
    assert loss.item() == pytest.approx(1.045638, abs=1e-6)
    loss.backward()
    assert logits.grad is not None
    assert logits.grad[0, 1].item() == 0.0


def test_a_prior_of_nothing_has_finite_log_odds() -> None:
    prior = clamp_prior(torch.tensor([0.0, 0.5, 1.0]), 8)
    assert prior.tolist() == pytest.approx([0.1, 0.5, 0.9])  # 1 / (8 + 2)


# (j) 3 to 6: which entries are tagged


def test_half_of_each_side_is_tagged_surest_first() -> None:
    half = torch.tensor([0.5])
    tags = tag_missing_labels(_no_tags(8), SCORES, torch.ones(8, 1, dtype=torch.bool), half, half)
    assert tags[:, 0].tolist() == [0, 0, -1, -1, -1, -1, 1, 1]


def test_a_score_of_zero_looks_absent() -> None:
    all_of_them = torch.ones(1)
    entries = torch.ones(3, 1, dtype=torch.bool)
    tags = tag_missing_labels(_no_tags(3), torch.zeros(3, 1), entries, all_of_them, all_of_them)
    assert tags.flatten().tolist() == [0, 0, 0]


def test_small_shares_of_few_entries_tag_nothing_by_floor_and_one_by_ceil() -> None:
    everywhere = torch.ones(8, 1, dtype=torch.bool)
    shares = torch.tensor([0.005]), torch.tensor([0.01])
    tags = tag_missing_labels(_no_tags(8), SCORES, everywhere, *shares)
    assert bool((tags == NO_TAG).all())
    tags = tag_missing_labels(_no_tags(8), SCORES, everywhere, *shares, "ceil")
    assert tags[:, 0].tolist() == [0, -1, -1, -1, -1, -1, -1, 1]


def test_tagging_dries_up_as_the_card_counts() -> None:
    # 4,500 look absent, 500 look present, fixed scores, shares 0.005 and 0.01 with d = 1.
    score = torch.cat([torch.linspace(1, 0.1, 4500), torch.linspace(-0.1, -1, 500)])[:, None]
    tags, productive = _no_tags(5000), 0
    everywhere = torch.ones(5000, 1, dtype=torch.bool)
    shares = torch.tensor([0.005], dtype=torch.float64), torch.tensor([0.01], dtype=torch.float64)
    for _ in range(450):
        present_before = int((tags == 1).sum())
        tags = tag_missing_labels(tags, score, everywhere, *shares)
        productive += int((tags == 1).sum()) > present_before
    assert int((tags[:4500] == NO_TAG).sum()) == 564
    assert int((tags[4500:] == NO_TAG).sum()) == 99
    assert productive == 208


def test_tags_are_for_ever_and_only_in_open_entries() -> None:
    generator = torch.Generator().manual_seed(0)
    open_entries = torch.rand(40, 3, generator=generator) < 0.6
    tags = _no_tags(40, 3)
    for _ in range(6):
        score = torch.rand(40, 3, generator=generator) - 0.5
        new = tag_missing_labels(tags, score, open_entries, *(torch.full((3,), 0.2),) * 2)
        was_tagged = tags != NO_TAG
        assert torch.equal(new[was_tagged], tags[was_tagged])
        assert bool((new[~open_entries] == NO_TAG).all())
        tags = new
    assert bool((tags != NO_TAG).any())


def test_the_released_code_drops_positives_of_a_round_without_negatives() -> None:
    arguments = (_no_tags(8), SCORES, torch.ones(8, 1, dtype=torch.bool))
    shares = torch.tensor([0.0]), torch.tensor([0.5])
    assert int((tag_missing_labels(*arguments, *shares) == 1).sum()) == 2
    paired = tag_missing_labels(*arguments, *shares, positives_need_negatives=True)
    assert bool((paired == NO_TAG).all())


def test_absence_score_knows_angles_only() -> None:
    features = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 3.0]])
    prototypes = torch.tensor([[[2.0, 0.0], [0.0, 5.0]]])  # absent points right, present up
    score = absence_score(features, prototypes)
    assert score[:, 0].tolist() == pytest.approx([1.0, 0.0, -1.0])
    torch.testing.assert_close(absence_score(features, 7 * prototypes), score)
    torch.testing.assert_close(absence_score(features, prototypes.flip(1)), -score)


# (j) 8 and 9: prototypes and learning degree


def test_prototypes_are_means_of_annotated_sides() -> None:
    features = torch.tensor([[2.0, 0.0], [4.0, 0.0], [0.0, 6.0], [100.0, 100.0]])
    labels = torch.tensor([[0], [0], [1], [1]], dtype=torch.uint8)
    known = torch.tensor([[True], [True], [True], [False]])
    prototypes, counts = class_prototypes(features, labels, known)
    assert prototypes[0].tolist() == [[3.0, 0.0], [0.0, 6.0]]
    assert counts[0].tolist() == [2, 1]


def _mean_of(values: list[tuple[float, float]]) -> float:
    """The global prototype from (value, count) pairs of clients."""
    like = {"prototypes": Mean(torch.zeros(1, 2, 1), torch.zeros(1, 2))}
    accumulator = Accumulator(like, len(values))
    for number, (value, count) in enumerate(values):
        part = Mean(torch.full((1, 2, 1), value), torch.full((1, 2), count))
        accumulator.add(str(number), {"prototypes": part})
    return accumulator.totals().mean("prototypes")[0, 0, 0].item()


def test_prototypes_are_weighted_by_their_counts() -> None:
    assert _mean_of([(1.0, 30.0), (4.0, 10.0)]) == pytest.approx(1.75)
    assert _mean_of([(2.5, 17.0)]) == 2.5  # one annotator: its prototype is the global one
    assert _mean_of([(1.0, 5.0), (4.0, 5.0)]) == pytest.approx(2.5)
    assert _mean_of([(1.0, 5.0), (999.0, 0.0)]) == 1.0  # a side without samples says nothing


def test_learning_degree_counts_decided_entries() -> None:
    everywhere = torch.ones(4, 1, dtype=torch.bool)
    undecided, _ = decided_share(torch.zeros(4, 1), everywhere, 0.3, 0.7)
    decided, count = decided_share(
        torch.tensor([[-9.0], [9.0], [8.0], [-7.0]]), everywhere, 0.3, 0.7
    )
    assert (undecided.item(), decided.item(), count.item()) == (0.0, 1.0, 4)
    at_the_bounds, _ = decided_share(torch.zeros(4, 1), everywhere, 0.5, 0.5)
    assert at_the_bounds.item() == 0.0  # below or above, not at
    half = torch.tensor([[True], [True], [False], [False]])
    mixed, count = decided_share(torch.tensor([[9.0], [0.0], [9.0], [9.0]]), half, 0.3, 0.7)
    assert (mixed.item(), count.item()) == (0.5, 2)
