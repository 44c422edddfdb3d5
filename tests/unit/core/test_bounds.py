"""Bounds: weights within what was agreed, norms within reach of the median, and no trace else."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from support.bounded_rounds import (
    CLIP,
    FIVE,
    REFUSE,
    accumulated,
    earlier_norms,
    mean,
    no_limit,
    refused_by,
)
from torch import tensor

from fedquilt.core.bounds import Bounds, OutOfBounds, RoundBounds
from fedquilt.core.errors import UserError
from fedquilt.core.norms import EarlierNorms, median_norms, norms_by_weight
from fedquilt.core.payload import Gather, Mean, Sum, Update
from fedquilt.core.totals import Accumulator, Totals
from fedquilt.core.tree import same_bits
from fedquilt.core.update_checks import RefusedUpdate


def plain(updates: Sequence[Update]) -> Totals:
    accumulator = Accumulator(updates[0], len(updates))
    for number, update in enumerate(updates):
        accumulator.add(f"c{number}", update)
    return accumulator.totals()


def test_norms_and_their_median_as_printed() -> None:
    norms = torch.stack([norms_by_weight(mean(value)["x"]) for value in FIVE])
    assert [round(norm, 4) for norm in norms.tolist()] == [1.0, 1.2042, 0.8062, 1.0198, 11.1803]
    assert round(float(median_norms(norms)), 4) == 1.0198


def test_the_clipped_mean_as_printed() -> None:
    totals = accumulated([mean(value) for value in FIVE], CLIP)
    assert [round(number, 4) for number in totals.mean("x").tolist()] == [0.5808, 0.1282]
    assert set(totals.bounds.clipped) == {"c1", "c4"}  # the median itself is left unchanged
    assert totals.bounds.refused == {}


def test_weights_are_capped_at_the_agreed_count_as_printed() -> None:
    agreed = {"c0": 100.0, "c1": 120.0, "c2": 80.0, "c3": 90.0}
    bounds = RoundBounds(CLIP, EarlierNorms(), lambda client, part: agreed[client])
    sent = {"c0": 100.0, "c1": 120.0, "c2": 80.0, "c3": 1e9}
    found = [bounds.weighed(client, mean((1.0,), weight)) for client, weight in sent.items()]
    assert [float(update["x"].weight) for update in found] == [100.0, 120.0, 80.0, 90.0]
    assert bounds.report().clipped == {"c3": ("x",)}


def test_by_default_a_weight_above_the_agreed_count_is_refused() -> None:
    honest = [mean((1.0,), 5.0), mean((3.0,), 5.0)]
    totals = accumulated([*honest, mean((9.0,), 1e9)], Bounds(), limit=5.0)
    assert "a weight of 1e+09 is above 5, the most that was agreed" in totals.bounds.refused["c2"]
    assert same_bits(dict(totals.sums), dict(plain(honest).sums))


def test_a_weight_of_a_class_and_a_gathered_weight_are_capped_alike() -> None:
    update: Update = {
        "head": Mean(torch.ones(2, 3), tensor([4.0, 60.0])),
        "images": Gather(tensor(60.0), is_weight=True),
    }
    bounds = RoundBounds(CLIP, EarlierNorms(), lambda client, part: 10.0)
    capped = bounds.weighed("c0", update)
    assert capped["head"].weight.tolist() == [4.0, 10.0]  # type: ignore[union-attr]
    assert capped["images"].value == 10.0
    with pytest.raises(OutOfBounds, match="'head': a weight of 60 is above 10"):
        RoundBounds(Bounds(), EarlierNorms(), lambda client, part: 10.0).weighed("c0", update)


def test_the_first_round_refuses_by_its_own_median() -> None:
    updates = [mean(value) for value in FIVE]
    totals = accumulated(updates, REFUSE)
    assert totals.cohort == ("c0", "c1", "c2", "c3")
    assert "its norm of 11.1803 is more than 5 times 1.0198" in totals.bounds.refused["c4"]
    assert same_bits(dict(totals.sums), dict(plain(updates[:4]).sums))
    assert "of 'c4', of norm 11.1803, 11 times the median" in totals.bounds.largest
    assert float(totals.bounds.norms.last["x"]) == 1.0  # the lower median of the four that counted


@pytest.mark.parametrize("place", range(5))
def test_a_refused_update_leaves_the_sums_and_their_order(place: int) -> None:
    """Wherever the liar stands, the others are added in their order, so no bit differs."""
    generator = torch.Generator().manual_seed(place)
    honest = [{"x": Mean(torch.randn(50, generator=generator), 3.0)} for _ in range(4)]
    liar = {"x": Mean(torch.full((50,), 1e38), 1.0)}
    order = [*honest[:place], liar, *honest[place:]]
    for earlier in (EarlierNorms(), earlier_norms(7.0)):
        totals = accumulated(order, Bounds(), earlier)
        assert [*totals.bounds.refused] == [f"c{place}"]
        assert same_bits(dict(totals.sums), dict(plain(honest).sums))


def test_honest_updates_are_added_bit_by_bit_and_in_order() -> None:
    generator = torch.Generator().manual_seed(0)
    updates = [
        {
            "x": Mean(torch.randn(30, generator=generator), 1.0 + number),
            "y": Sum(tensor(float(new))),
        }
        for number, new in enumerate((0, 0, 1, 0, 1, 1, 0, 1, 1, 0, 1))  # y is new: some must wait
    ]
    for hold in (2, 8, 100):
        totals = accumulated(updates, Bounds(), hold=hold)
        assert totals.cohort == tuple(f"c{number}" for number in range(11))
        assert same_bits(dict(totals.sums), dict(plain(updates).sums))


def test_no_more_updates_wait_than_are_held() -> None:
    bounds = RoundBounds(Bounds(), EarlierNorms(), no_limit, hold=4)
    accumulator = Accumulator(mean((1.0,)), 20, bounds=bounds)
    waiting = []
    for number in range(20):
        accumulator.add(f"c{number}", mean((1.0 + number % 3,)))
        waiting.append(len(accumulator._waiting))
    assert max(waiting) < 4
    assert len(accumulator.totals().cohort) == 20


def test_all_clients_may_grow_together() -> None:
    """When a method enters its next stage, every client's norm may jump; one's may not."""
    earlier = earlier_norms(0.01)
    together = accumulated([mean((value,)) for value in (1.0, 2.0, 3.0)], Bounds(), earlier)
    assert together.bounds.refused == {}
    alone = accumulated([mean((value,)) for value in (0.01, 0.02, 3.0)], Bounds(), earlier)
    assert [*alone.bounds.refused] == ["c2"]


def test_of_two_clients_nobody_can_tell_which_is_wrong() -> None:
    first = accumulated([mean((0.001,)), mean((1.0,))], Bounds())
    assert first.bounds.refused == {}  # a site with few images is honest, too
    assert float(first.bounds.norms.last["x"]) == 1.0
    later = accumulated([mean((0.001,)), mean((1e38,))], Bounds(), first.bounds.norms)
    assert [*later.bounds.refused] == ["c1"]  # the round before can tell
    both = accumulated([mean((40.0,)), mean((50.0,))], Bounds(), first.bounds.norms)
    assert both.bounds.refused == {}


@pytest.mark.parametrize(("steps", "refused"), [(1, ["c2"]), (10, [])])
def test_a_client_with_more_steps_may_move_further(steps: int, refused: list[str]) -> None:
    """30 times 1 is not enough for 100; with ten times the steps of the median, 300 is."""

    def steps_of(client: str) -> int:
        return steps if client == "c2" else 1

    bounds = RoundBounds(Bounds(), EarlierNorms(), no_limit, steps=steps_of)
    assert refused_by(bounds, 1.0, 1.0, 100.0) == refused


@pytest.mark.parametrize(("value", "refused"), [(400.0, []), (10_000.0, ["c2"])])
def test_of_squares_the_roots_are_compared(value: float, refused: list[str]) -> None:
    """The root of 400 is 20, within 30 times 1; that of 10,000 is not."""
    bounds = RoundBounds(Bounds(), EarlierNorms(), no_limit, squares=frozenset({"x"}))
    assert refused_by(bounds, 1.0, 1.0, value) == refused


def test_a_part_that_only_one_client_fills_has_an_absolute_limit() -> None:
    assert refused_by(RoundBounds(Bounds(), EarlierNorms(), no_limit), 0.0, 0.0, 1e8) == []
    assert refused_by(RoundBounds(Bounds(), EarlierNorms(), no_limit), 0.0, 0.0, 1e10) == ["c2"]


def test_a_client_alone_is_taken() -> None:
    assert accumulated([mean((1e6,))], Bounds(), earlier_norms(1.0)).cohort == ("c0",)


def test_a_part_that_is_zero_is_never_compared() -> None:
    """FedMLP's prototypes are 0 before their stage; then the first senders are not outliers."""
    updates = [mean((0.0,)) for _ in range(5)]
    totals = accumulated(updates, Bounds())
    assert "x" not in totals.bounds.norms.last
    assert totals.bounds.largest == "no update was measured"


def test_the_rows_of_a_head_are_clipped_among_their_annotators() -> None:
    """Row 0: norms 3, 4 and 50, median 4. Row 1 has two annotators, 6 and 8: the smaller, 6."""
    rows = [((3.0, 1e30), (1, 0)), ((4.0, 6.0), (2, 2)), ((50.0, 8.0), (1, 1))]
    updates: list[Update] = [
        {"head": Mean(tensor(value)[:, None], tensor(weight, dtype=torch.float64))}
        for value, weight in rows
    ]
    totals = accumulated(updates, CLIP)
    # (1 * 3 + 2 * 4 + 1 * 4) / 4 and (2 * 6 + 1 * 6) / 3; the row without weight does not count.
    assert totals.mean("head").tolist() == [[3.75], [6.0]]
    assert totals.bounds.clipped == {"c2": ("head",)}
    assert totals.bounds.norms.last["head"].tolist() == [4.0, 6.0]


def test_a_part_that_is_zero_at_all_clients_has_no_median_and_is_not_clipped() -> None:
    totals = accumulated([mean((0.0, 0.0)) for _ in range(3)], CLIP)
    assert totals.mean("x").tolist() == [0.0, 0.0]
    assert totals.bounds.clipped == {}


def test_clipping_streams_once_there_is_a_median() -> None:
    bounds = RoundBounds(CLIP, earlier_norms(2.0), no_limit)
    accumulator = Accumulator(mean((1.0,)), 3, bounds=bounds)
    accumulator.add("c0", mean((8.0,)))
    assert not accumulator._waiting
    assert accumulator.totals().mean("x").tolist() == [2.0]


@pytest.mark.parametrize("beyond", ["refuse", "clip"])
def test_an_agreed_norm_takes_the_place_of_the_median(beyond: Any) -> None:
    settings = Bounds(beyond=beyond, max_norms={"x": 5.0})
    totals = accumulated([mean((4.0, 3.0)), mean((8.0, 6.0))], settings)
    if beyond == "clip":  # (8, 6) has norm 10: halved
        assert totals.mean("x").tolist() == [4.0, 3.0]
    else:
        assert "its norm of 10 is above the agreed 5" in totals.bounds.refused["c1"]
    assert "x" not in totals.bounds.norms.last


def test_accepting_measures_nothing_but_weights_stay_bounded() -> None:
    settings = Bounds(beyond="accept")
    totals = accumulated([mean((1e38,)), mean((1.0,), 9.0)], settings, limit=5.0)
    assert totals.cohort == ("c0",)
    assert totals.bounds.norms == EarlierNorms()


def test_a_norm_that_overflows_is_refused() -> None:
    wide: Update = {"x": Sum(torch.full((2,), 1e300, dtype=torch.float64))}
    totals = accumulated([{"x": Sum(torch.ones(2, dtype=torch.float64))}, wide], Bounds())
    assert "its norm overflows" in totals.bounds.refused["c1"]


def test_a_waiting_update_counts_as_sent() -> None:
    bounds = RoundBounds(Bounds(), EarlierNorms(), no_limit)
    accumulator = Accumulator(mean((1.0,)), 3, bounds=bounds)
    accumulator.add("c0", mean((1.0,)))
    with pytest.raises(RefusedUpdate, match="already counted"):
        accumulator.add("c0", mean((1.0,)))


def test_a_waiting_update_is_a_copy() -> None:
    """An engine may reuse the memory of an update once it was taken."""
    bounds = RoundBounds(Bounds(), EarlierNorms(), no_limit)
    accumulator = Accumulator(mean((1.0,)), 3, bounds=bounds)
    value, weight = tensor([1.0]), tensor(2.0, dtype=torch.float64)
    accumulator.add("c0", {"x": Mean(value, weight)})
    value.fill_(7.0)
    weight.fill_(9.0)
    totals = accumulator.totals()
    assert totals.mean("x").tolist() == [1.0]
    assert float(totals.weight("x")) == 2.0


def test_the_medians_survive_the_history() -> None:
    updates = [mean(value) for value in FIVE]
    for settings, earlier in ((CLIP, EarlierNorms()), (Bounds(), earlier_norms(2.0, 3.0))):
        report = accumulated(updates, settings, earlier).bounds
        found = EarlierNorms.from_facts(json.loads(json.dumps(report.facts(), allow_nan=False)))
        assert same_bits(dict(found.last), dict(report.norms.last))
        assert same_bits(dict(found.sustained), dict(report.norms.sustained))
    assert EarlierNorms.from_facts({"round": 3}) == EarlierNorms()


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"norm_factor": 0.5}, "norm_factor must be at least 1"),
        ({"norm_factor": math.nan}, "norm_factor must be at least 1"),
        ({"max_norms": {"body": 0.0}}, "bounds.max_norms.body must be positive"),
    ],
)
def test_settings_that_cannot_be_meant(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        Bounds(**wrong)
