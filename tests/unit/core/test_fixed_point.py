"""Integers modulo 2^64: oracles by hand, the order of arrival, faint weights and ranges."""

from __future__ import annotations

import itertools

import pytest
import torch

from fedquilt.core.bounds import OutOfBounds
from fedquilt.core.errors import UserError
from fedquilt.core.fixed_point import (
    PartScale,
    add_integers,
    as_floats,
    fraction_bits,
    quantised,
    refuse_gathered,
)
from fedquilt.core.payload import Gather, Mean, Sum, Update
from fedquilt.core.totals import Accumulator, Totals
from fedquilt.core.tree import same_bits

# f = g = 8. Every number has at most 8 bits behind the point, so nothing is rounded.
SCALE = PartScale(largest=16.0, value_bits=8, weight_bits=8)
VALUES = ((0.5, -1.25), (0.25, 2.0), (-0.125, 0.75))
WEIGHTS = (3.0, 1.0, 4.0)
INTEGERS = ((384, -960), (64, 512), (-128, 768))  # 3 * 0.5 * 256 = 384, ...


def _part(number: int) -> Mean:
    return Mean(torch.tensor(VALUES[number]), WEIGHTS[number])


def _totals(updates: list[tuple[str, Update]], scales: dict[str, PartScale]) -> Totals:
    accumulator = Accumulator(updates[0][1], len(updates), scales=scales)
    for client, update in updates:
        accumulator.add(client, update)
    return accumulator.totals()


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_weighted_value_is_scaled_and_rounded(number: int) -> None:
    found = quantised("a", "body", _part(number), SCALE)
    assert tuple(found["total"].tolist()) == INTEGERS[number]
    assert int(found["weight"]) == WEIGHTS[number] * 256


def test_the_sum_and_the_mean_of_three() -> None:
    sums = quantised("a", "body", _part(0), SCALE)
    for number in (1, 2):
        add_integers(sums, quantised("a", "body", _part(number), SCALE))
    assert sums["total"].tolist() == [320, 320]
    totals = _totals([(name, {"x": _part(k)}) for k, name in enumerate("abc")], {"x": SCALE})
    assert totals.mean("x").tolist() == [5 / 32, 5 / 32]  # 320 / 256 / 8
    assert float(totals.weight("x")) == 8.0


def test_ties_are_rounded_to_even() -> None:
    halves = Sum(torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5]) / 256)
    assert quantised("a", "x", halves, SCALE)["total"].tolist() == [0, 2, 2, 0, -2]


def test_sums_wrap_around_and_come_back() -> None:
    top = {"total": torch.tensor([2**63 - 1])}
    add_integers(top, {"total": torch.tensor([2])})
    assert top["total"].tolist() == [-(2**63) + 1]
    add_integers(top, {"total": torch.tensor([-2])})
    assert top["total"].tolist() == [2**63 - 1]


@pytest.mark.parametrize(
    ("largest_sum", "bits"),
    [(1.0, 61), (16.0, 57), (8.0, 58), (9.0, 58), (50 * 20_000 * 16.0, 38)],
)
def test_the_scale_uses_the_bits_that_the_largest_sum_leaves(largest_sum: float, bits: int) -> None:
    assert fraction_bits(largest_sum) == bits
    assert largest_sum * 2.0**bits < 2**62


def test_a_scale_follows_from_range_and_agreed_weights() -> None:
    mean = PartScale.of(Mean(torch.zeros(1), 1.0), 16.0, [100, 120, 80])
    assert mean == PartScale(16.0, fraction_bits(4800), fraction_bits(300))
    assert PartScale.of(Sum(torch.zeros(1)), 4.0, [1, 1, 1]) == PartScale(4.0, fraction_bits(12))


def test_any_order_of_arrival_gives_the_same_bits() -> None:
    generator = torch.Generator().manual_seed(0)
    updates = [
        (name, {"x": Mean(torch.randn(500, generator=generator), 10.0 + 3 * place)})
        for place, name in enumerate("abcde")
    ]
    scales = {"x": PartScale.of(updates[0][1]["x"], 16.0, [30.0] * 5)}
    expected = _totals(updates, scales).mean("x")
    for order in itertools.permutations(updates):
        assert same_bits(_totals(list(order), scales).mean("x"), expected)
    weights = torch.tensor([10.0, 13, 16, 19, 22], dtype=torch.float64)
    values = torch.stack([update["x"].value.double() for _, update in updates])
    exact = (values * weights[:, None]).sum(0) / weights.sum()
    torch.testing.assert_close(expected.double(), exact, rtol=1e-7, atol=1e-8)


def test_a_faint_weight_is_none_and_the_part_rests() -> None:
    faint = {"x": Mean(torch.tensor([3.0, -2.0]), 1e-100)}
    rests = _totals([("a", faint), ("b", faint)], {"x": SCALE})
    assert rests.mean("x").tolist() == [0.0, 0.0]
    assert float(rests.weight("x")) == 0.0
    assert rests.mean("x", otherwise=torch.tensor([7.0, 8.0])).tolist() == [7.0, 8.0]
    joined = _totals(
        [("a", faint), ("b", {"x": Mean(torch.tensor([1.0, 4.0]), 2.0)})], {"x": SCALE}
    )
    assert joined.mean("x").tolist() == [1.0, 4.0]


def test_rows_without_weight_rest_one_by_one() -> None:
    rows = Mean(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([2.0, 0.0]))
    totals = _totals([("a", {"x": rows}), ("b", {"x": rows})], {"x": SCALE})
    assert totals.mean("x").tolist() == [[1.0, 2.0], [0.0, 0.0]]


@pytest.mark.parametrize("number", [16.001, -20.0])
def test_a_value_beyond_the_range_is_refused_and_leaves_no_trace(number: float) -> None:
    good = {"w": Sum(torch.ones(2)), "x": Sum(torch.ones(2))}
    bad = {"w": Sum(torch.ones(2)), "x": Sum(torch.tensor([0.0, number]))}
    scales = {"w": SCALE, "x": SCALE}
    accumulator = Accumulator(good, 3, scales=scales)
    accumulator.add("a", good)
    with pytest.raises(OutOfBounds, match=r"'b', part 'x': a value of .* is beyond 16"):
        accumulator.add("b", bad)
    totals = accumulator.totals()
    assert totals.cohort == ("a",)
    assert totals.sum("w").tolist() == [1.0, 1.0]


def test_a_value_at_the_range_is_kept_and_one_without_weight_is_not_read() -> None:
    assert quantised("a", "x", Sum(torch.tensor([16.0])), SCALE)["total"].tolist() == [4096]
    rows = Mean(torch.tensor([1.0, 1e9]), torch.tensor([1.0, 0.0]))
    assert quantised("a", "x", rows, SCALE)["total"].tolist() == [256, 0]


def test_floats_come_back_exactly() -> None:
    sums = {"total": torch.tensor([384, -960]), "weight": torch.tensor(768)}
    found = as_floats(sums, SCALE)
    assert found["total"].tolist() == [1.5, -3.75]
    assert float(found["weight"]) == 3.0


def test_gathered_parts_are_refused_by_name() -> None:
    with pytest.raises(UserError, match=r"'codes'.*Gather"):
        refuse_gathered({"body": Sum(torch.zeros(1)), "codes": Gather(torch.zeros(1))}, "ring")
