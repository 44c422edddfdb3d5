"""Parts of an update, the sums made of them and their sizes."""

from __future__ import annotations

import pytest
import torch
from torch import tensor

from fedquilt.core.payload import (
    Gather,
    Mean,
    PerClient,
    Sum,
    broadcast_bytes,
    over_leading_axes,
    summands,
    update_bytes,
)
from fedquilt.core.tree import same_bits

F64 = torch.float64


def test_a_sum_is_added_unchanged_in_float64():
    assert same_bits(
        summands(Sum({"a": tensor([1.0, 2.0])})), {"total": {"a": tensor([1.0, 2.0], dtype=F64)}}
    )


def test_a_mean_is_added_as_weighted_value_and_weight():
    parts = summands(Mean({"a": tensor([1.0, 2.0])}, 3.0))
    assert same_bits(
        parts, {"total": {"a": tensor([3.0, 6.0], dtype=F64)}, "weight": tensor(3.0, dtype=F64)}
    )


def test_a_weight_per_class_applies_to_rows_and_biases():
    head = {"weight": tensor([[1.0, 2.0], [3.0, 4.0]]), "bias": tensor([5.0, 6.0])}
    parts = summands(Mean(head, tensor([10.0, 0.0])))
    expected = {
        "weight": tensor([[10.0, 20.0], [0.0, 0.0]], dtype=F64),
        "bias": tensor([50.0, 0.0], dtype=F64),
    }
    assert same_bits(parts["total"], expected)


def test_a_weight_may_have_two_axes():
    value = torch.ones(2, 2, 3)  # prototypes: class, side, feature
    parts = summands(Mean(value, tensor([[1.0, 2.0], [3.0, 4.0]])))
    assert parts["total"][:, :, 0].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert parts["total"].shape == (2, 2, 3)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 2, 1)])
def test_a_weight_that_does_not_fit_is_refused(shape):
    with pytest.raises(ValueError, match=r"does not match the leading axes.*\(2, 2\)"):
        over_leading_axes(torch.ones(shape), torch.ones(2, 2))


def test_summands_share_no_memory_with_what_was_sent():
    value, weight = torch.ones(2, dtype=F64), torch.ones(2, dtype=F64)
    summands(Sum({"a": value}))["total"]["a"].add_(1)
    summands(Mean({"a": value}, weight))["weight"].add_(1)
    assert value.tolist() == [1.0, 1.0]
    assert weight.tolist() == [1.0, 1.0]


def test_shared_parts_count_once_per_client_and_own_parts_by_their_size():
    payload = {
        "weights": {"a": torch.zeros(3), "b": torch.zeros(2)},  # 20, for each of three
        "own": PerClient({"one": torch.zeros(4), "two": torch.zeros(1)}, newcomer=torch.zeros(2)),
    }
    assert broadcast_bytes(payload, ["one", "two", "three"]) == 3 * 20 + 16 + 4 + 8


def test_update_bytes_counts_values_and_weights():
    update = {
        "sum": Sum({"a": torch.zeros(3)}),  # 12
        "mean": Mean({"a": torch.zeros(2)}, 1.0),  # 8, and a float64
        "rows": Mean({"a": torch.zeros(2)}, torch.ones(2)),  # 8, and two float64
        "all": Gather({"a": torch.zeros(5, dtype=torch.uint8)}),  # 5
    }
    assert update_bytes(update) == 12 + 16 + 24 + 5
