"""An invalid update is refused with a reason, and nothing of it is added."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import tensor

from fedquilt.core.payload import Gather, Mean, Sum, Update
from fedquilt.core.totals import Accumulator
from fedquilt.core.tree import same_bits
from fedquilt.core.update_checks import RefusedUpdate, check_update

EXPECTED: Update = {
    "control": Sum({"w": torch.zeros(2, 3)}),
    "head": Mean({"rows": torch.zeros(2, 3), "bias": torch.zeros(2)}, torch.zeros(2)),
    "loss": Mean(torch.zeros(()), 0.0),
    "model": Gather({"w": torch.zeros(2)}),
}


def good_update(number: float = 1.0) -> dict[str, object]:
    return {
        "control": Sum({"w": torch.full((2, 3), number)}),
        "head": Mean(
            {"rows": torch.full((2, 3), number), "bias": torch.full((2,), number)},
            tensor([1.0, 2.0]),
        ),
        "loss": Mean(tensor(number), 5.0),
        "model": Gather({"w": torch.full((2,), number)}),
    }


def head(rows: object = None, weight: object = None) -> Mean:
    rows = torch.ones(2, 3) if rows is None else rows
    weight = tensor([1.0, 2.0]) if weight is None else weight
    return Mean({"rows": rows, "bias": torch.ones(2)}, weight)


def with_one(bad: float) -> torch.Tensor:
    values = torch.ones(2, 3)
    values[1, 2] = bad
    return values


BROKEN: dict[str, tuple[dict[str, object], str]] = {
    "missing part": ({"head": None}, r"missing \['head'\], unexpected \[\]"),
    "extra part": ({"evil": Sum(tensor(1.0))}, r"missing \[\], unexpected \['evil'\]"),
    "wrong kind": (
        {"head": Sum({"rows": torch.ones(2, 3), "bias": torch.ones(2)})},
        r"part 'head': expected a Mean, found a Sum",
    ),
    "gathered instead of summed": (
        {"control": Gather({"w": torch.ones(2, 3)})},
        "part 'control': expected a Sum, found a Gather",
    ),
    "missing name": (
        {"head": Mean({"rows": torch.ones(2, 3)}, tensor([1.0, 2.0]))},
        r"part 'head'.*names differ.*\['bias'\]",
    ),
    "extra name": (
        {"control": Sum({"w": torch.ones(2, 3), "v": tensor(1.0)})},
        r"part 'control'.*names differ.*\['v'\]",
    ),
    "nested name": (
        {"control": Sum({"w": {"w": torch.ones(2, 3)}})},
        r"part 'control'.*names differ.*\['w', 'w/w'\]",
    ),
    "empty branch": (
        {"control": Sum({"w": torch.ones(2, 3), "nothing": {}})},
        r"part 'control'.*names differ.*nothing",
    ),
    "name with a slash": (
        {"control": Sum({"w": torch.ones(2, 3), "a/b": tensor(1.0)})},
        "part 'control'",
    ),
    "no tree": ({"control": Sum([1.0, 2.0])}, "part 'control'"),
    "wrong shape": (
        {"control": Sum({"w": torch.ones(3, 2)})},
        r"part 'control', 'w': expected torch.float32 of shape \(2, 3\), found .* \(3, 2\)",
    ),
    "broadcastable shape": ({"control": Sum({"w": torch.ones(1, 3)})}, r"found .*\(1, 3\)"),
    "wrong dtype": (
        {"control": Sum({"w": torch.ones(2, 3, dtype=torch.float64)})},
        r"'w': expected torch.float32 of shape \(2, 3\), found torch.float64",
    ),
    "NaN": ({"control": Sum({"w": with_one(math.nan)})}, "'control', 'w': holds NaN or infinite"),
    "infinity": ({"head": head(rows=with_one(math.inf))}, "'head', 'rows': holds NaN or infinite"),
    "minus infinity": ({"model": Gather({"w": tensor([0.0, -math.inf])})}, "'model', 'w': holds"),
    "NaN in a bare tensor": ({"loss": Mean(tensor(math.nan), 5.0)}, "part 'loss': holds NaN"),
    "negative weight": ({"head": head(weight=tensor([1.0, -1.0]))}, "'head': a weight must be"),
    "negative scalar weight": ({"loss": Mean(tensor(1.0), -5.0)}, "'loss': a weight must be"),
    "NaN weight": ({"head": head(weight=tensor([math.nan, 1.0]))}, "finite and not negative"),
    "infinite weight": ({"loss": Mean(tensor(1.0), math.inf)}, "finite and not negative"),
    "scalar for a weight per class": (
        {"head": head(weight=1.0)},
        r"'head': expected a weight of shape \(2,\), found \(\)",
    ),
    "weight of another length": (
        {"head": head(weight=torch.ones(3))},
        r"expected a weight of shape \(2,\), found \(3,\)",
    ),
    "weight per class for a scalar": (
        {"loss": Mean(tensor(1.0), torch.ones(1))},
        r"'loss': expected a weight of shape \(\), found \(1,\)",
    ),
    "no weight": ({"loss": Mean(tensor(1.0), None)}, "part 'loss'"),
    "weight too large for a product": (
        {
            "head": head(
                rows=torch.full((2, 3), 1e30), weight=tensor([1e300, 1.0], dtype=torch.float64)
            )
        },
        "part 'head'",
    ),
}


def broken_update(changes: dict[str, object]) -> dict[str, object]:
    changed = good_update() | changes
    return {name: part for name, part in changed.items() if part is not None}


def state_of(accumulator: Accumulator) -> dict[str, object]:
    """Return every number the server can read."""
    totals = accumulator.totals()
    return {
        "control": totals.sum("control"),
        "head": totals.mean("head"),
        "weight": totals.weight("head"),
        "loss": totals.mean("loss"),
        "model": dict(totals.each("model")),
    }


def filled() -> Accumulator:
    accumulator = Accumulator(EXPECTED, 5)
    accumulator.add("first", good_update(0.1))
    return accumulator


def test_a_good_update_passes():
    check_update(good_update(), EXPECTED, "site")


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_update_is_refused_with_its_reason(case):
    changes, reason = BROKEN[case]
    with pytest.raises(RefusedUpdate, match=reason) as caught:
        check_update(broken_update(changes), EXPECTED, "site-7")
    assert "'site-7'" in str(caught.value)


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("position", ["first", "middle", "last"])
def test_a_refused_update_leaves_the_totals_bit_identical(case, position):
    pieces: list[Callable[[Accumulator], None]] = [
        lambda accumulator: accumulator.add("a", good_update(0.1)),
        lambda accumulator: accumulator.add("b", good_update(0.7)),
    ]
    untouched, disturbed = Accumulator(EXPECTED, 5), Accumulator(EXPECTED, 5)
    for piece in pieces:
        piece(untouched)

    def refuse(accumulator: Accumulator) -> None:
        with pytest.raises(RefusedUpdate):
            accumulator.add("bad", broken_update(BROKEN[case][0]))

    pieces.insert({"first": 0, "middle": 1, "last": 2}[position], refuse)
    for piece in pieces:
        piece(disturbed)
    assert same_bits(state_of(disturbed), state_of(untouched))
    assert disturbed.totals().cohort == untouched.totals().cohort == ("a", "b")
    assert disturbed.totals().byte_count == untouched.totals().byte_count


def test_a_client_counts_once_a_round():
    accumulator = filled()
    before = state_of(filled())
    with pytest.raises(RefusedUpdate, match="'first' was already counted in this round"):
        accumulator.add("first", good_update(0.5))
    assert same_bits(state_of(accumulator), before)


def test_a_refused_client_may_send_again():
    accumulator = Accumulator(EXPECTED, 5)
    with pytest.raises(RefusedUpdate):
        accumulator.add("site", broken_update({"head": None}))
    accumulator.add("site", good_update(0.1))
    assert accumulator.totals().cohort == ("site",)


def test_integers_and_empty_tensors_are_fine():
    update = {"x": Sum({"n": tensor([1, 2]), "none": torch.zeros(0)})}
    check_update(update, update, "site")


def test_large_numbers_are_fine_even_if_their_sum_over_tensors_overflows():
    large = torch.full((2,), 1.5e308, dtype=torch.float64)
    update = {"x": Sum({"one": large, "two": large})}
    check_update(update, update, "site")


def test_a_zero_weight_is_fine():
    check_update(good_update() | {"loss": Mean(tensor(1.0), 0.0)}, EXPECTED, "site")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_bad_number_is_found_on_a_gpu(number: float) -> None:
    update = {
        "w": Sum({"fine": torch.ones(3, device="cuda"), "bad": torch.ones(2, 2, device="cuda")})
    }
    check_update(update, update, "site")
    update["w"].value["bad"][1, 0] = number
    with pytest.raises(RefusedUpdate, match="'bad': holds NaN or infinite numbers"):
        check_update(update, update, "site")
