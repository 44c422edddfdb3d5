"""Norms that were usual in earlier rounds: who still learns late in training is not refused."""

from __future__ import annotations

from support.bounded_rounds import (
    CLIP,
    REFUSE,
    accumulated,
    earlier_norms,
    mean,
    no_limit,
    refused_by,
)
from torch import tensor

from fedquilt.core.bounds import Bounds, RoundBounds
from fedquilt.core.norms import EarlierNorms
from fedquilt.core.totals import Accumulator

ROUNDS = [  # norms of three clients, then: the median, what is sustained after it, who is refused
    ((8.0, 10.0, 12.0), 10.0, None, []),
    ((9.0, 9.0, 9.0), 9.0, 9.0, []),  # min(10, 9)
    ((0.1, 0.1, 0.1), 0.1, 9.0, []),  # all have learnt; max(9, min(9, 0.1))
    ((0.1, 0.1, 9.0), 0.1, 9.0, []),  # who still learns: 90 times the median, not above 9
    ((0.1, 0.1, 9.5), 0.1, 9.0, ["c2"]),
]


def test_who_still_learns_is_taken_by_what_was_usual_earlier() -> None:
    earlier = EarlierNorms()
    for norms, median, sustained, refused in ROUNDS:
        report = accumulated([mean((norm,)) for norm in norms], REFUSE, earlier).bounds
        earlier = report.norms
        assert [*report.refused] == refused
        assert float(earlier.last["x"]) == median
        assert earlier.sustained == ({} if sustained is None else {"x": tensor(sustained).double()})
    assert "5 times 0.1, the median, and above what was usual earlier (9)" in report.refused["c2"]


def test_one_round_of_many_liars_is_not_what_was_usual() -> None:
    """In the second round two of three send 100. It is the median once, and never sustained."""
    found = []
    earlier = EarlierNorms()
    for norms in ((1.0, 1.0, 1.0), (1.0, 100.0, 100.0), (0.1, 0.1, 0.1), (0.1, 0.1, 100.0)):
        report = accumulated([mean((norm,)) for norm in norms], REFUSE, earlier).bounds
        earlier = report.norms
        found.append((float(earlier.last["x"]), [*report.refused]))
    assert found == [(1.0, []), (100.0, []), (0.1, []), (0.1, ["c2"])]
    assert float(earlier.sustained["x"]) == 1.0


def test_nothing_is_usual_where_one_or_two_send() -> None:
    earlier = EarlierNorms()
    for _ in range(3):
        earlier = accumulated([mean((1.0,)), mean((1e8,))], Bounds(), earlier).bounds.norms
    assert earlier.sustained == {}


def test_what_was_usual_grows_with_the_steps_as_the_median_does() -> None:
    """c2 takes four times the steps of the median: 4 times 9 is its limit."""
    for norm, refused in ((36.0, []), (37.0, ["c2"])):
        bounds = RoundBounds(
            REFUSE,
            earlier_norms(0.1, 9.0),
            no_limit,
            steps=lambda client: 4 if client == "c2" else 1,
        )
        assert refused_by(bounds, 0.1, 0.1, norm) == refused


def test_an_update_within_what_was_usual_does_not_wait() -> None:
    bounds = RoundBounds(REFUSE, earlier_norms(0.1, 9.0), no_limit)
    accumulator = Accumulator(mean((1.0,)), 3, bounds=bounds)
    accumulator.add("c0", mean((9.0,)))
    assert not accumulator._waiting
    accumulator.add("c1", mean((9.5,)))
    assert [*accumulator._waiting] == ["c1"]


def test_clipping_goes_by_the_median_of_the_round_before_alone() -> None:
    totals = accumulated([mean((9.0,)) for _ in range(3)], CLIP, earlier_norms(2.0, 9.0))
    assert totals.mean("x").tolist() == [2.0]
    assert float(totals.bounds.norms.sustained["x"]) == 9.0  # as it was
