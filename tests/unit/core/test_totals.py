"""Aggregated sums and means of a round, compared with numbers computed by hand."""

from __future__ import annotations

import pytest
import torch
from torch import tensor

from fedquilt.core.payload import Gather, Mean, Sum, Update
from fedquilt.core.totals import Accumulator, Totals
from fedquilt.core.tree import clone, same_bits

F64 = torch.float64


def totals_of(*updates: Update, population: int = 10) -> Totals:
    """Aggregate the updates of clients c0, c1, ..."""
    accumulator = Accumulator(updates[0], population)
    for number, update in enumerate(updates):
        accumulator.add(f"c{number}", update)
    return accumulator.totals()


def mean_of(*pairs: tuple[object, object], **settings: object) -> torch.Tensor:
    """Return the mean of (value, weight) pairs."""
    return totals_of(*({"x": Mean(value, weight)} for value, weight in pairs)).mean("x", **settings)


def test_a_sum_over_clients():
    totals = totals_of(*({"x": Sum({"a": tensor([1.0, number])})} for number in (2.0, 3.0, 5.0)))
    assert same_bits(totals.sum("x"), {"a": tensor([3.0, 10.0])})


def test_a_mean_with_scalar_weights():
    # (1 * 2 + 5 * 6) / 8 = 4
    assert mean_of((tensor([1.0]), 2.0), (tensor([5.0]), 6.0)).tolist() == [4.0]


def test_a_mean_with_a_weight_per_class():
    first = (tensor([[1.0, 2.0], [10.0, 20.0]]), tensor([1.0, 0.0]))
    second = (tensor([[5.0, 6.0], [30.0, 40.0]]), tensor([3.0, 2.0]))
    # Row 0: (1 + 15) / 4 = 4 and (2 + 18) / 4 = 5. Row 1 is the second client's alone.
    assert mean_of(first, second).tolist() == [[4.0, 5.0], [30.0, 40.0]]


def test_the_summed_weight_is_known_per_class():
    updates = [
        {"x": Mean(torch.zeros(2, 3), tensor(weight))} for weight in ([1.0, 0.0], [3.0, 2.0])
    ]
    assert totals_of(*updates).weight("x").tolist() == [4.0, 2.0]


def test_a_mean_without_weight_is_an_error():
    value, weight = torch.ones(2, 3), tensor([1.0, 0.0])
    with pytest.raises(ValueError, match=r"c0.*had weight.*'x'.*otherwise=") as caught:
        mean_of((value, weight))
    assert "nan" not in str(caught.value)
    with pytest.raises(ValueError, match="otherwise="):
        mean_of((tensor([1.0]), 0.0), (tensor([2.0]), 0.0))


def test_otherwise_is_used_only_where_the_weight_is_zero():
    value = tensor([[1.0], [2.0], [3.0]])
    mean = mean_of((value, tensor([2.0, 0.0, 4.0])), otherwise=tensor([[7.0], [8.0], [9.0]]))
    assert mean.tolist() == [[1.0], [8.0], [3.0]]


def test_otherwise_is_used_for_a_scalar_weight_of_zero():
    mean = mean_of((tensor([1.0, 2.0]), 0.0), otherwise=tensor([7.0, 8.0]))
    assert mean.tolist() == [7.0, 8.0]


def test_otherwise_changes_nothing_where_there_is_weight():
    pairs = [(torch.rand(3, 2), torch.rand(3)) for _ in range(4)]
    with_fallback = mean_of(*pairs, otherwise=torch.full((3, 2), torch.nan))
    assert same_bits(with_fallback, mean_of(*pairs))


def test_one_client_with_an_integer_weight_is_the_identity_bit_for_bit():
    value = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    for weight in (1.0, 3.0, 7.0, 21.0, 5743.0, 112_120.0):
        assert same_bits(mean_of((value, weight)), value)
        assert same_bits(mean_of((value, torch.full((3,), weight))), value)


def test_equal_values_keep_every_bit_whatever_the_weights():
    value = torch.randn(50, generator=torch.Generator().manual_seed(1))
    assert same_bits(mean_of((value, 3.0), (value, 11.0), (value, 6.0)), value)


def test_scaling_all_weights_changes_nothing():
    values = torch.randn(4, 20, generator=torch.Generator().manual_seed(2))
    weights = (1.0, 5.0, 2.0, 9.0)
    plain = mean_of(*((value, weight) for value, weight in zip(values, weights)))
    doubled = mean_of(*((value, 1024 * weight) for value, weight in zip(values, weights)))
    assert same_bits(plain, doubled)


def test_a_mean_stays_between_the_smallest_and_the_largest():
    values = torch.randn(5, 200, generator=torch.Generator().manual_seed(3))
    mean = mean_of(*((value, float(place)) for place, value in enumerate(values)))
    assert bool((mean >= values.min(0).values).all())
    assert bool((mean <= values.max(0).values).all())


def test_the_order_of_arrival_does_not_change_the_mean():
    values = torch.randn(6, 100, generator=torch.Generator().manual_seed(4))
    pairs = [(value, float(place + 1)) for place, value in enumerate(values)]
    assert same_bits(mean_of(*pairs), mean_of(*reversed(pairs)))


def test_sums_do_not_lose_small_numbers():
    # In float32 2**24 + 1 is 2**24: adding 64 ones one by one would be lost.
    updates = [{"x": Sum(tensor([2.0**24]))}, *({"x": Sum(tensor([1.0]))} for _ in range(64))]
    assert totals_of(*updates).sum("x").tolist() == [2.0**24 + 64]


def test_results_have_the_dtype_that_was_sent():
    value = torch.ones(2, dtype=torch.bfloat16)
    assert mean_of((value, 2.0)).dtype == torch.bfloat16
    assert totals_of({"x": Sum(value)}).sum("x").dtype == torch.bfloat16


def test_gather_keeps_each_client_apart():
    each = totals_of(*({"x": Gather({"a": tensor([number])})} for number in (1.0, 2.0))).each("x")
    assert {client: value["a"].item() for client, value in each.items()} == {"c0": 1.0, "c1": 2.0}


def test_cohort_population_and_bytes():
    totals = totals_of(*({"x": Sum(torch.zeros(3))} for _ in range(2)), population=7)
    assert totals.cohort == ("c0", "c1")
    assert totals.population == 7
    assert totals.byte_count == 2 * 3 * 4


@pytest.mark.parametrize(("read", "wanted"), [("sum", "Sum"), ("each", "Gather")])
def test_a_part_must_be_read_as_its_kind(read, wanted):
    totals = totals_of({"x": Mean(torch.ones(1), 1.0)})
    with pytest.raises(KeyError, match=rf"'x' is a Mean, and was read as a {wanted}"):
        getattr(totals, read)("x")


def test_a_part_that_was_not_sent_is_an_error():
    with pytest.raises(KeyError, match="'y' is not sent, and was read as a Mean"):
        totals_of({"x": Mean(torch.ones(1), 1.0)}).mean("y")


@pytest.mark.parametrize("kind", [Sum, Gather, lambda value: Mean(value, 1.0)])
def test_reading_a_round_without_clients_is_an_error(kind):
    totals = Accumulator({"x": kind(torch.ones(1))}, 3).totals()
    read = {Sum: totals.sum, Gather: totals.each}.get(kind, totals.mean)
    with pytest.raises(ValueError, match="no client reported"):
        read("x")


def test_adding_an_update_does_not_change_the_clients_own_tensors():
    """The running sums are new tensors, so a client may keep the ones it sent."""
    mine = {"count": torch.ones(2, dtype=F64), "weight": torch.ones(2, dtype=F64)}
    before = clone(mine)
    first = {"s": Sum(mine["count"]), "m": Mean(torch.ones(2, 2), mine["weight"])}
    second = {"s": Sum(torch.ones(2, dtype=F64)), "m": Mean(torch.ones(2, 2), torch.ones(2))}
    totals_of(first, second)
    assert same_bits(mine, before)


def test_two_parts_may_share_one_weight():
    """Each part counts its weight once, even if both hold the same tensor."""
    updates = []
    for number in (1.0, 4.0):
        counts = torch.full((2,), number, dtype=F64)
        values = torch.full((2, 3), number)
        updates.append({"rows": Mean(values, counts), "prototypes": Mean(values, counts)})
    totals = totals_of(*updates)
    assert totals.weight("rows").tolist() == [5.0, 5.0]
    # (1 * 1 + 4 * 4) / 5 = 3.4
    assert torch.allclose(totals.mean("rows"), torch.full((2, 3), 3.4))
    assert torch.allclose(totals.mean("prototypes"), torch.full((2, 3), 3.4))
