"""RoundChoice: the best round, patience, and rounds that other sites validated."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fedquilt.data.validation import Validation
from fedquilt.metrics.round_choice import RoundChoice, score_of

PATIENT = Validation(patience=2, min_gain=0.01)


def after(
    scores: Sequence[float | None], settings: Validation = PATIENT, warmup: int = 0
) -> RoundChoice:
    choice = RoundChoice()
    for number, score in enumerate(scores, start=1):
        choice = choice.after(number, score, settings, warmup=warmup)
    return choice


def test_the_largest_score_wins_and_a_tie_goes_to_the_earlier_round():
    assert after([0.5, 0.7, 0.6]).best == 2
    assert after([0.5, 0.7, 0.7]).best == 2
    assert after([0.7, 0.705]).best == 2  # a gain too small for patience is still better
    assert after([None, 0.4, None]).best == 2
    assert after([None, None]).best is None


def test_patience_counts_validations_without_the_smallest_gain():
    assert [after(s).without_gain for s in ([0.5], [0.5, 0.505], [0.5, 0.505, 0.509])] == [0, 1, 2]
    # Small gains add up: 0.51 is 0.01 above the 0.5 of the last gain.
    assert after([0.5, 0.505, 0.51]).without_gain == 0
    assert after([0.5, 0.4, 0.4]).is_over(PATIENT)
    assert not after([0.5, 0.4, 0.6]).is_over(PATIENT)
    assert not after([0.5, 0.4, 0.4]).is_over(Validation())
    # Nothing to gain at all, with min_gain 0: an equal score is no gain.
    assert after([0.5, 0.5], Validation(patience=1, min_gain=0.0)).is_over(Validation(patience=1))


def test_patience_begins_after_the_warm_up():
    falling = [0.9, 0.8, 0.7, 0.6, 0.5]
    assert [after(falling, warmup=w).without_gain for w in (0, 3, 5)] == [4, 2, 0]
    assert after(falling, warmup=3).best == 1  # a round of the warm-up can be the best


def test_rounds_validated_by_other_sites_are_not_compared():
    everyone, few = ("a", "b"), ("a",)
    choice = RoundChoice()
    for number, score, sites in [(1, 0.6, everyone), (2, 0.7, everyone), (3, 0.9, few)]:
        choice = choice.after(number, score, PATIENT, sites=sites)
    assert (choice.best, choice.without_gain) == (2, 0)
    # Site b is lost for good: when the rounds without it are more, the choice starts again.
    for number, score in [(4, 0.65), (5, 0.66), (6, 0.6)]:
        choice = choice.after(number, score, PATIENT, sites=few)
    assert (choice.best, choice.sites) == (5, few)


@pytest.mark.parametrize(("metric", "score"), [("site_auc", 0.8), ("loss", -0.3)])
def test_of_a_loss_the_smallest_is_best(metric, score):
    assert score_of({"site_auc": 0.8, "loss": 0.3}, metric) == score
    assert score_of({"site_auc": None, "loss": None}, metric) is None
