"""Arithmetic on nested dicts of tensors."""

from __future__ import annotations

import math

import pytest
import torch
from torch import tensor

from fedquilt.core.tree import (
    add,
    as_branch,
    byte_count,
    clone,
    divided,
    flatten,
    from_branch,
    leaves,
    map_together,
    on_host,
    same_bits,
    sub,
    tree_map,
    unflatten,
    write_all,
    zeros_like,
)

NESTED = {"body": {"w": tensor([1.0, 2.0])}, "b": tensor(3.0)}


def test_tree_map_keeps_names_and_order():
    doubled = tree_map(lambda leaf: 2 * leaf, NESTED)
    assert list(doubled) == ["body", "b"]
    assert same_bits(doubled, {"body": {"w": tensor([2.0, 4.0])}, "b": tensor(6.0)})


def test_tree_map_matches_others_by_name_not_by_order():
    other = {"b": tensor(10.0), "body": {"w": tensor([20.0, 30.0])}}
    total = tree_map(torch.add, NESTED, other)
    assert same_bits(total, {"body": {"w": tensor([21.0, 32.0])}, "b": tensor(13.0)})


def test_tree_map_takes_a_bare_tensor():
    assert same_bits(tree_map(torch.add, tensor([1.0]), tensor([2.0])), tensor([3.0]))


def test_write_all_writes_in_place_and_accepts_empty_lists():
    place = torch.zeros(2, requires_grad=True)
    write_all([place], [tensor([1.0, 2.0])])
    assert place.tolist() == [1.0, 2.0]
    assert place.requires_grad
    write_all([], [])


@pytest.mark.parametrize(
    ("other", "found"),
    [
        ({"b": tensor(0.0)}, r"\['b'\]"),
        ({"body": {"w": tensor(0.0)}, "b": tensor(0.0), "c": tensor(0.0)}, r"\['b', 'body', 'c'\]"),
        (tensor(0.0), "a tensor"),
    ],
)
def test_tree_map_refuses_other_names(other, found):
    with pytest.raises(ValueError, match=rf"expected the names \['b', 'body'\], found {found}"):
        tree_map(torch.add, NESTED, other)


def test_tree_map_refuses_a_branch_where_the_first_tree_has_a_leaf():
    with pytest.raises(ValueError, match="trees differ"):
        tree_map(torch.add, {"a": tensor(1.0)}, {"a": {"b": tensor(1.0)}})


def test_leaves_are_paths():
    assert [path for path, _ in leaves(NESTED)] == ["body/w", "b"]
    assert [path for path, _ in leaves(tensor(1.0))] == [""]


@pytest.mark.parametrize("name", ["", "a/b", "/"])
def test_leaves_refuse_invalid_names(name):
    with pytest.raises(ValueError, match="non-empty and without '/'"):
        list(leaves({"good": {name: tensor(1.0)}}))


@pytest.mark.parametrize("tree", [NESTED, tensor([1.0, 2.0]), {}])
def test_unflatten_inverts_flatten(tree):
    assert same_bits(unflatten(flatten(tree)), tree)
    assert isinstance(unflatten(flatten(tree)), type(tree))


def test_zeros_like_keeps_shapes_and_dtypes():
    zeros = zeros_like({"a": torch.ones(2, 3, dtype=torch.float64), "n": tensor([5])})
    assert same_bits(zeros, {"a": torch.zeros(2, 3, dtype=torch.float64), "n": tensor([0])})


def test_clone_shares_nothing():
    original = {"a": torch.ones(2, requires_grad=True)}
    copy = clone(original)
    copy["a"].add_(1)
    assert original["a"].tolist() == [1.0, 1.0]
    assert not copy["a"].requires_grad


def test_on_host_does_not_copy_host_tensors():
    tree = {"a": torch.ones(2), "b": {"c": torch.zeros(1)}}
    found = on_host(tree)
    assert found["a"] is tree["a"]
    assert found["b"]["c"] is tree["b"]["c"]


def test_on_host_makes_tensors_contiguous():
    there = torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last)
    found = on_host({"a": there})["a"]
    assert found.is_contiguous()
    assert found.flatten().tolist() == list(range(24))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_host_waits_for_the_gpu():
    steps = torch.full((2000, 2000), 1.0, device="cuda")
    for _ in range(50):
        steps = steps @ torch.eye(2000, device="cuda")
    found = on_host({"whole": steps, "part": {"row": steps[3]}})
    assert not found["whole"].is_cuda
    assert found["whole"].eq(1).all()
    assert found["part"]["row"].eq(1).all()


def test_add_scales_the_second_in_the_dtype_of_the_first():
    total = add({"a": tensor([1.0, 2.0])}, {"a": tensor([10.0, 20.0], dtype=torch.float64)}, 0.5)
    assert same_bits(total, {"a": tensor([6.0, 12.0])})  # 1 + 5, 2 + 10


def test_sub():
    assert same_bits(sub({"a": tensor([5.0])}, {"a": tensor([2.0])}), {"a": tensor([3.0])})


def test_divided():
    found = divided({"a": tensor([6.0]), "b": {"c": tensor([[3.0, -9.0]])}}, 3)
    assert same_bits(found, {"a": tensor([2.0]), "b": {"c": tensor([[1.0, -3.0]])}})
    assert divided({}, 3) == {}


def test_byte_count():
    tree = {"a": torch.zeros(3), "b": {"c": torch.zeros(2, dtype=torch.float64), "d": tensor(True)}}
    assert byte_count(tree) == 3 * 4 + 2 * 8 + 1


@pytest.mark.parametrize(
    "other",
    [
        {"a": tensor([1.0, math.nan]), "b": tensor(0.0)},  # an extra name
        {"b": tensor([1.0, math.nan])},  # another name
        {"a": tensor([[1.0, math.nan]])},  # another shape
        {"a": tensor([1.0, math.nan], dtype=torch.float64)},  # another dtype
        {"a": tensor([1.0 + 2**-23, math.nan])},  # the last bit
    ],
)
def test_same_bits_sees_every_difference(other):
    assert not same_bits({"a": tensor([1.0, math.nan])}, other)


def test_same_bits_compares_bits_not_values():
    assert same_bits({"a": tensor([math.nan])}, {"a": tensor([math.nan])})
    assert not same_bits({"a": tensor([0.0])}, {"a": tensor([-0.0])})


@pytest.mark.parametrize(
    "leaf",
    [
        torch.zeros(0, 3),
        tensor(1.0),
        tensor([True, False]),
        torch.ones(2, 3).T,
        torch.ones(2, dtype=torch.bfloat16),
        torch.ones(2, requires_grad=True),
    ],
)
def test_same_bits_takes_every_kind_of_leaf(leaf):
    assert same_bits({"a": leaf}, {"a": leaf.detach().clone()})


def test_map_together_gives_all_leaves_at_once_matched_by_name():
    calls = []

    def weigh(ones, others):
        calls.append(len(ones))
        return [one + 10 * other for one, other in zip(ones, others)]

    other = {"b": tensor(5.0), "body": {"w": tensor([3.0, 4.0])}}  # in another order
    found = map_together(weigh, NESTED, other)
    assert calls == [2]
    assert [*found] == ["body", "b"]
    assert found["body"]["w"].tolist() == [31.0, 42.0]
    assert found["b"].item() == 53.0
    assert map_together(weigh, tensor(1.0), tensor(2.0)).item() == 21.0
    assert map_together(weigh, {"empty": {}}, {"empty": {}}) == {"empty": {}}
    with pytest.raises(ValueError, match="trees differ"):
        map_together(weigh, NESTED, {"b": tensor(5.0)})


@pytest.mark.parametrize("client", ["site-1", "Sankt Georg/Leipzig", "50%2F", "."])
def test_any_client_name_can_be_encoded_as_a_name(client: str):
    branch = as_branch(client)
    assert unflatten(flatten({branch: {"w": tensor(1.0)}})) == {branch: {"w": tensor(1.0)}}
    assert from_branch(branch) == client
