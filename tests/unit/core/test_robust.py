"""Robust rules on the five updates of the design card, and class by class over annotators."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, tensor

from fedquilt.core.aggregation_rules import AggregationRules
from fedquilt.core.errors import UserError
from fedquilt.core.fixed_point import PartScale
from fedquilt.core.payload import Mean, Sum, Update
from fedquilt.core.robust import Robust, RobustRound, centered_clip, krum_scores, stacks_of
from fedquilt.core.totals import Accumulator, Totals
from fedquilt.core.tree import same_bits

# Norms 1, 1.2042, .8062, 1.0198 and 11.1803: the last one lies.
FIVE = tensor([(1.0, 0.0), (1.2, 0.1), (0.8, -0.1), (1.0, 0.2), (-10.0, 5.0)])
TWO_CLASSES = {"a": (True, True), "b": (True, True), "c": (True, True), "d": (False, True)}


def combined(
    updates: Sequence[Update],
    settings: Robust,
    annotates: dict[str, tuple[bool, ...]] | None = None,
    scales: dict[str, PartScale] | None = None,
    names: str = "abcde",
) -> Totals:
    rule = RobustRound(
        settings,
        annotates=None if annotates is None else lambda name: tensor(annotates[name]),
    )
    accumulator = Accumulator(updates[0], len(updates), rule=rule, scales=scales)
    for name, update in zip(names, updates):
        accumulator.add(name, update)
    return accumulator.totals()


def whole(values: Tensor, weights: Sequence[float] = (1.0,) * 5) -> list[Update]:
    return [{"body": Mean({"w": v}, weight)} for v, weight in zip(values, weights)]


def result(rule: str, **settings: object) -> Tensor:
    totals = combined(whole(FIVE), Robust(rule=rule, **settings))  # type: ignore[arg-type]
    mean: Tensor = totals.mean("body")["w"]
    return mean


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("median", (1.0, 0.1)),
        ("trimmed", (0.933333, 0.1)),
        ("krum", (1.0, 0.05)),  # the mean of the first four
    ],
)
def test_the_oracles_of_five_updates(rule: str, expected: tuple[float, float]) -> None:
    torch.testing.assert_close(result(rule), tensor(expected), rtol=0, atol=1e-6)


def test_krum_scores_of_five_updates() -> None:
    gaps = (FIVE[:, None] - FIVE[None]).double().square().sum(2)
    expected = tensor([0.09, 0.10, 0.18, 0.09, 286.69], dtype=torch.float64)
    torch.testing.assert_close(krum_scores(gaps, 1), expected, rtol=0, atol=1e-4)


def test_one_step_of_centered_clipping() -> None:
    found = centered_clip(stacks_of([{"w": row} for row in FIVE]), 5, steps=1)["w"]
    expected = tensor([0.9752, 0.0880], dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=0, atol=5e-5)
    assert result("centered-clip")[0] > 0.9


def test_krum_averages_by_weight_and_names_whom_it_dropped() -> None:
    totals = combined(whole(FIVE, (1, 1, 1, 7, 1e6)), Robust(rule="krum"))
    # (1 + 1.2 + .8 + 7) / 10 and (0 + .1 - .1 + 1.4) / 10
    torch.testing.assert_close(totals.mean("body")["w"], tensor([1.0, 0.14]))
    assert totals.weight("body") == 10
    assert totals.robust.facts() == {"dropped": {"e": {"body": 1}}}


@pytest.mark.parametrize("rule", ["median", "trimmed", "krum", "centered-clip"])
def test_the_order_of_arrival_changes_no_bit(rule: str) -> None:
    settings, updates = Robust(rule=rule), whole(FIVE)  # type: ignore[arg-type]
    expected = combined(updates, settings)
    for order in itertools.islice(itertools.permutations(range(5)), 7, 120, 17):
        names = "".join("abcde"[place] for place in order)
        found = combined([updates[place] for place in order], settings, names=names)
        assert same_bits(dict(found.sums), dict(expected.sums))


def rows(first: float, second: float, weights: tuple[float, float]) -> Update:
    return {"head": Mean({"w": tensor([[first], [second]], dtype=torch.float32)}, tensor(weights))}


def test_only_annotators_vote_on_a_class() -> None:
    """Three sites annotate class 0; the zeros of the others must not win its median."""
    both = (1.0, 1.0)
    updates = [rows(1, 5, both), rows(2, 6, both), rows(3, 7, both), rows(0, 8, both)]
    masked = combined(updates, Robust(rule="median"), TWO_CLASSES)
    assert masked.mean("head")["w"].tolist() == [[2.0], [6.5]]
    unmasked = combined(updates, Robust(rule="median"))
    assert unmasked.mean("head")["w"].tolist() == [[1.5], [6.5]]


def test_a_class_without_an_annotator_in_the_round_is_voted_on_by_whoever_has_weight() -> None:
    updates = [rows(1, 5, (1.0, 1.0)), rows(2, 6, (1.0, 1.0)), rows(9, 7, (1.0, 1.0))]
    nobody = dict.fromkeys("abc", (False, True))
    totals = combined(updates, Robust(rule="median"), nobody)
    assert totals.mean("head")["w"].tolist() == [[2.0], [6.0]]


def test_one_or_two_annotators_are_reported_as_undefended() -> None:
    updates = [rows(1, 3, (1.0, 1.0)), rows(2, 30, (0.0, 1.0)), rows(3, 9, (0.0, 0.0))]
    totals = combined(updates, Robust(rule="krum"))
    assert totals.robust.undefended == {"head": (0, 1)}
    # One voter counts as it is; of two, the larger is clipped to the smaller: (3 + 3) / 2.
    assert totals.mean("head")["w"].tolist() == [[1.0], [3.0]]


def test_fewer_liars_are_assumed_where_there_are_few_voters() -> None:
    """Of three, at most one can lie: two would be the majority."""
    totals = combined(whole(FIVE[[0, 3, 4]]), Robust(rule="krum", liars=5), names="abc")
    assert totals.robust.dropped == {"c": {"body": 1}}


def test_sums_stay_sums_and_rings_stay_exact() -> None:
    updates = [
        {"body": Mean({"w": v}, 2.0), "control": Sum(tensor([float(place)]))}
        for place, v in enumerate(FIVE)
    ]
    scales = {"body": PartScale(16.0, 30, 30), "control": PartScale(16.0, 30)}
    totals = combined(updates, Robust(rule="median"), scales=scales)
    assert totals.sum("control").tolist() == [10.0]
    assert totals.mean("body")["w"].tolist() == pytest.approx([1.0, 0.1])


def test_bad_settings_are_refused() -> None:
    with pytest.raises(UserError, match=r"robust.liars must be at least 1, found 0"):
        Robust(liars=0)
    with pytest.raises(UserError, match=r"robust.alarm must be a fall of the AUC"):
        Robust(alarm=5.0)
    with pytest.raises(UserError, match=r"a site that lies .* or a curious server"):
        AggregationRules(summation="secure", robust=Robust(rule="krum"))  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", ["median", "trimmed", "krum", "centered-clip"])
def test_a_gpu_memory_format_changes_no_bit(rule: str) -> None:
    kernels = torch.randn(5, 2, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    usual = combined(whole(kernels), Robust(rule=rule))  # type: ignore[arg-type]
    last = [kernel.contiguous(memory_format=torch.channels_last) for kernel in kernels]
    found = combined([{"body": Mean({"w": w}, 1.0)} for w in last], Robust(rule=rule))  # type: ignore[arg-type]
    assert usual.mean("body")["w"].abs().max() > 0
    assert same_bits(found.mean("body"), usual.mean("body"))
