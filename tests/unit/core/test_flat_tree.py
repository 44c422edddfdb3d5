"""Flat trees: views in place of tensors, parts as ranges, the same bits from fewer calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.torch_calls import TorchCalls
from torch import Tensor

from fedquilt.core.bounds import DEFAULT_BOUNDS, RoundBounds
from fedquilt.core.flat_tree import ALIGNED, FlatTree, flat_copy
from fedquilt.core.norms import EarlierNorms
from fedquilt.core.payload import Mean, Sum, Update
from fedquilt.core.totals import Accumulator
from fedquilt.core.tree import (
    add,
    byte_count,
    clone,
    divided,
    flatten,
    map_together,
    part_of,
    pieces,
    same_bits,
    signature,
    sub,
    tree_map,
    zeros_like,
)
from fedquilt.core.update_checks import RefusedUpdate


def _tensors(seed: int = 0, layers: int = 3) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(seed)
    found: dict[str, Tensor] = {}
    for layer in range(layers):
        found[f"{layer}.kernel"] = torch.randn(4, 3, 2, 2, generator=random)
        found[f"{layer}.bias"] = torch.randn(4, generator=random)
        found[f"{layer}.count"] = torch.randint(0, 9, (), generator=random)
    return found


def test_a_copy_has_the_same_numbers_in_few_flat_tensors() -> None:
    tensors = _tensors()
    flat = flat_copy(tensors)
    assert list(flat) == list(tensors)
    assert same_bits(flat, tensors)
    assert {each.dtype for each in flat.flats} == {torch.float32, torch.int64}
    assert all(view.storage_offset() % ALIGNED == 0 for view in flat.values())
    assert signature({"a": flat, "b": {}}) == signature({"a": tensors, "b": {}})
    assert byte_count({"a": flat}) == byte_count(tensors)
    flat["1.bias"].fill_(7.0)
    assert (flat.flats[0] == 7.0).sum() == 4


def test_kernels_keep_the_memory_format_they_are_given() -> None:
    flat = flat_copy(_tensors(), channels_last=True)
    assert flat["0.kernel"].is_contiguous(memory_format=torch.channels_last)
    assert not flat["0.kernel"].is_contiguous()
    assert same_bits(flat, _tensors())


def test_equal_layouts_are_one_object_and_others_are_not() -> None:
    flat = flat_copy(_tensors())
    assert flat_copy(_tensors(seed=1)).layout is flat.layout
    assert flat_copy(_tensors(), channels_last=True).layout is not flat.layout
    assert flat_copy(_tensors(layers=2)).layout is not flat.layout


def test_a_part_is_a_range_of_the_same_memory() -> None:
    flat = flat_copy({name: each for name, each in _tensors().items() if "count" not in name})
    names = [name for name in flat if not name.startswith("0")]
    part = part_of(flat, names)
    assert isinstance(part, FlatTree)
    assert same_bits(part, {name: flat[name] for name in names})
    part["1.bias"].fill_(7.0)
    assert flat["1.bias"].tolist() == [7.0] * 4
    assert part_of(flat, names).layout is part.layout  # type: ignore[attr-defined]


def test_a_part_of_scattered_tensors_is_a_plain_dict() -> None:
    flat = flat_copy(_tensors())
    part = part_of(flat, ["0.bias", "2.bias"])
    assert not isinstance(part, FlatTree)
    assert part["2.bias"].data_ptr() == flat["2.bias"].data_ptr()


def test_arithmetic_is_that_of_plain_trees() -> None:
    ones, others = ({"m": _floats(seed), "x": torch.ones(2)} for seed in (0, 1))
    one, other = ({"m": flat_copy(_floats(seed)), "x": torch.ones(2)} for seed in (0, 1))
    pairs: list[tuple[Any, Any]] = [
        (add(one, other), add(ones, others)),
        (sub(one, other), sub(ones, others)),
        (divided(one, 3.0), divided(ones, 3.0)),
        (zeros_like(one), zeros_like(ones)),
        (clone(one), ones),
    ]
    for found, expected in pairs:
        assert isinstance(found["m"], FlatTree)
        assert same_bits(found, expected)
    assert same_bits(sub(one, others), sub(ones, others))  # leaf by leaf
    assert same_bits(sub(ones, other), sub(ones, others))


def test_trees_of_other_names_are_refused_as_before() -> None:
    flat, shorter = flat_copy(_tensors()), flat_copy(_tensors(layers=2))
    with pytest.raises(ValueError, match="trees differ"):
        sub(flat, shorter)


def test_it_can_be_read_as_a_dict_and_not_changed() -> None:
    tensors = _tensors()
    flat = flat_copy(tensors)
    more = {"more": torch.ones(1)}
    assert len(flat) == len(tensors)
    assert "0.bias" in flat
    assert flat.get("none") is None
    for joined in (flat | more, {**flat, **more}, more | flat):
        assert joined.keys() == tensors.keys() | {"more"}
        assert not isinstance(joined, FlatTree)
    assert dict(flat).keys() == tensors.keys()
    flat.update({"0.bias": flat["0.bias"]})  # functional_call does
    for change in (
        lambda: flat.update(more),
        lambda: flat.pop("0.bias"),
        lambda: flat.__setitem__("0.bias", torch.zeros(4)),
        lambda: flat.setdefault("new", torch.zeros(4)),
    ):
        with pytest.raises(TypeError, match="cannot be changed"):
            change()


def _update(value: dict[str, Tensor], weight: float) -> Update:
    floats = [name for name in value if "count" not in name]
    return {
        "body": Mean(part_of(value, floats), weight, needs_weight=True),
        "total": Sum(part_of(value, floats)),
    }


def _round(values: list[dict[str, Tensor]]) -> tuple[dict[str, Tensor], dict[str, Tensor], object]:
    expected = _update(_tensors(), 1.0)
    bounds = RoundBounds(DEFAULT_BOUNDS, EarlierNorms(), lambda client, part: 100.0, hold=2)
    accumulator = Accumulator(expected, len(values), bounds=bounds)
    for number, value in enumerate(values):
        accumulator.add(f"site-{number}", _update(value, number + 0.5))
    totals = accumulator.totals()
    return totals.mean("body"), totals.sum("total"), totals.bounds.facts()["norms"]


def _floats(seed: int) -> dict[str, Tensor]:
    return {name: each for name, each in _tensors(seed).items() if "count" not in name}


def test_a_round_of_flat_updates_has_the_bits_of_plain_ones() -> None:
    plain = [_floats(seed) for seed in range(5)]
    expected, found = _round(plain), _round([flat_copy(value) for value in plain])
    assert same_bits(found[0], expected[0])
    assert same_bits(found[1], expected[1])
    assert found[2] == expected[2]  # medians of norms
    mixed = [flat_copy(value) if seed % 2 else value for seed, value in enumerate(plain)]
    assert same_bits(_round(mixed)[0], expected[0])


def test_a_flat_update_with_a_nan_is_refused_by_the_name_of_its_tensor() -> None:
    value = flat_copy(_floats(0))
    value["1.kernel"][0, 0, 0, 0] = torch.nan
    with pytest.raises(RefusedUpdate, match=r"part 'body', '1\.kernel': holds NaN"):
        Accumulator(_update(_tensors(), 1.0), 1).add("site", _update(value, 1.0))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_a_flat_update_of_another_dtype_is_refused(dtype: torch.dtype) -> None:
    value = flat_copy({name: each.to(dtype) for name, each in _floats(0).items()})
    with pytest.raises(RefusedUpdate, match=r"expected torch\.float32"):
        Accumulator(_update(_tensors(), 1.0), 1).add("site", _update(value, 1.0))


def test_calls_do_not_grow_with_the_number_of_tensors() -> None:
    counts = []
    for layers in (3, 30):
        values = [flat_copy(_floats_of(layers, seed)) for seed in (0, 1, 2)]
        expected = {"body": Mean(values[0].copy(), 1.0)}
        accumulator = Accumulator(
            expected,
            3,
            bounds=RoundBounds(DEFAULT_BOUNDS, EarlierNorms(), lambda client, part: 100.0),
        )
        for number in (0, 1):
            accumulator.add(f"site-{number}", {"body": Mean(sub(values[0], values[number]), 1.0)})
        with TorchCalls() as calls:
            change = sub(values[1], values[2])
            accumulator.add("site-2", {"body": Mean(change, 1.0)})
        counts.append(sum(calls.count.values()))
    assert counts[0] == counts[1]


def _floats_of(layers: int, seed: int) -> dict[str, Tensor]:
    return {n: each for n, each in _tensors(seed, layers).items() if "count" not in n}


def test_pieces_hold_all_numbers() -> None:
    tree = {"m": flat_copy(_floats(0)), "x": torch.ones(2)}
    assert len(pieces(tree)) == 2
    total = sum(float(piece.double().sum()) for piece in pieces(tree))
    assert total == pytest.approx(
        sum(float(leaf.double().sum()) for leaf in flatten(tree).values())
    )
    doubled = map_together(lambda leaves: [2 * leaf for leaf in leaves], tree)
    assert same_bits(doubled, tree_map(lambda leaf: 2 * leaf, tree))
