"""Body, head rows and buffers: how they are split, weighted and averaged."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.tiny_federation import make_federation, make_method
from torch import Tensor, tensor

from fedquilt.core.totals import Accumulator, Totals
from fedquilt.core.tree import Weights, same_bits
from fedquilt.data.client_data import ClientData
from fedquilt.models.network import Layout, read_weights
from fedquilt.training.averaging import (
    by_row_counts,
    change_of,
    head_row_weights,
    mean_change,
    moved_buffers,
    split,
    weight_parts,
)
from fedquilt.training.rounds import run_rounds, start_server

LAYOUT = Layout(body=("conv",), head=("head.weight", "head.bias"), buffers=("mean",))
RULES = ("all", "annotated", "positives")


def weights(conv: float, rows: list[float], bias: list[float], mean: float) -> Weights:
    return {
        "conv": tensor([float(conv)]),
        "head.weight": tensor(rows, dtype=torch.float32)[:, None].repeat(1, 2),  # (3, 2)
        "head.bias": tensor(bias, dtype=torch.float32),
        "mean": tensor([float(mean)]),
    }


def client(known: list[list[int]], labels: list[list[int]]) -> ClientData:
    return ClientData(
        name="site",
        images=torch.zeros(len(known), 1, 2, 2, dtype=torch.uint8),
        indices=torch.arange(len(known)),
        labels=tensor(labels, dtype=torch.uint8),
        known=tensor(known, dtype=torch.bool),
    )


def totals_of(*parts: tuple[Weights, float, Tensor], layout: Layout = LAYOUT) -> Totals:
    """The totals of clients given by (change, weight, weights of their head rows)."""
    updates = [weight_parts(change, layout, weight, rows) for change, weight, rows in parts]
    accumulator = Accumulator(updates[0], len(updates))
    for number, update in enumerate(updates):
        accumulator.add(str(number), update)
    return accumulator.totals()


def test_split_sorts_by_the_layout():
    parts = split(weights(1, [2, 3, 4], [5, 6, 7], 8), LAYOUT)
    assert {part: list(value) for part, value in parts.items()} == {
        "body": ["conv"],
        "head": ["head.weight", "head.bias"],
        "buffers": ["mean"],
    }


def test_a_network_without_buffers_sends_none():
    parts = weight_parts(
        weights(1, [2, 3, 4], [5, 6, 7], 8), replace(LAYOUT, buffers=()), 2.0, torch.ones(3)
    )
    assert set(parts) == {"body", "head"}


def test_only_the_head_has_a_weight_per_class():
    parts = weight_parts(weights(1, [2, 3, 4], [5, 6, 7], 8), LAYOUT, 4.0, tensor([1.0, 0, 2]))
    assert parts["body"].weight == parts["buffers"].weight == 4.0
    assert parts["head"].weight.tolist() == [1.0, 0.0, 2.0]


def test_the_change_is_after_minus_before():
    after, before = weights(3, [1, 1, 1], [0, 0, 0], 9), weights(1, [2, 2, 2], [0, 0, 1], 4)
    assert same_bits(change_of(after, before), weights(2, [-1, -1, -1], [0, 0, -1], 5))


def test_head_row_weights_of_each_rule():
    # Class 0 is annotated in 3 images with 2 positives, class 1 in 2 with none, class 2 never;
    # the ones in column 2 and in the last row of column 1 are not annotated.
    data = client(
        known=[[1, 1, 0], [1, 1, 0], [1, 0, 0]],
        labels=[[1, 0, 1], [0, 0, 1], [1, 1, 1]],
    )
    assert head_row_weights("all", 3.0, data).tolist() == [3.0, 3.0, 3.0]
    assert head_row_weights("annotated", 3.0, data).tolist() == [3.0, 2.0, 0.0]
    assert head_row_weights("positives", 3.0, data).tolist() == [2.0, 0.0, 0.0]


def test_sample_weighted_averaging_by_hand():
    """Rule A1: every entry, batch norm's statistics too, by the number of images."""
    one = (weights(1, [1, 2, 3], [1, 1, 1], 10), 1.0, torch.full((3,), 1.0))
    two = (weights(5, [5, 6, 7], [9, 9, 9], 20), 3.0, torch.full((3,), 3.0))
    totals = totals_of(one, two)
    change = mean_change(totals)
    assert change["conv"].tolist() == [4.0]  # (1 + 15) / 4
    assert change["head.weight"][:, 0].tolist() == [4.0, 5.0, 6.0]
    assert change["head.bias"].tolist() == [7.0, 7.0, 7.0]
    before = weights(0, [0, 0, 0], [0, 0, 0], 100)
    # (10 + 60) / 4 = 17.5
    assert same_bits(moved_buffers(before, totals), {"mean": tensor([117.5])})


def test_annotator_weighted_head_rows_by_hand():
    """Rule A3: a head row by annotated images of its class, the body as before."""
    one = (weights(1, [1, 2, 3], [1, 2, 3], 0), 1.0, tensor([1.0, 4.0, 0.0]))
    two = (weights(5, [5, 6, 7], [5, 6, 7], 0), 3.0, tensor([3.0, 0.0, 0.0]))
    change = mean_change(totals_of(one, two))
    assert change["conv"].tolist() == [4.0]
    # Row 0: (1 + 15) / 4; row 1: the first client's; row 2: nobody's, so it does not move.
    assert change["head.weight"].tolist() == [[4.0, 4.0], [2.0, 2.0], [0.0, 0.0]]
    assert change["head.bias"].tolist() == [4.0, 2.0, 0.0]


def test_all_annotating_all_classes_is_plain_averaging():
    generator = torch.Generator().manual_seed(0)
    draws = [torch.randn(8, generator=generator).tolist() for _ in range(3)]
    changes = [weights(d[0], d[1:4], d[4:7], d[7]) for d in draws]
    counts = (5.0, 11.0, 2.0)
    data = [client([[1, 1, 1]] * int(count), [[0, 1, 0]] * int(count)) for count in counts]
    by_rule = {
        rule: mean_change(
            totals_of(
                *(
                    (change, count, head_row_weights(rule, count, each))
                    for change, count, each in zip(changes, counts, data)
                )
            )
        )
        for rule in ("all", "annotated")
    }
    assert same_bits(by_rule["all"], by_rule["annotated"])


def test_a_sole_annotators_row_is_taken_bit_for_bit():
    generator = torch.Generator().manual_seed(1)
    draws = [torch.randn(8, generator=generator).tolist() for _ in range(2)]
    changes = [weights(d[0], d[1:4], d[4:7], d[7]) for d in draws]
    change = mean_change(
        totals_of(
            (changes[0], 7.0, tensor([7.0, 0.0, 7.0])), (changes[1], 9.0, tensor([0.0, 9.0, 9.0]))
        )
    )
    for row, owner in ((0, 0), (1, 1)):
        assert same_bits(change["head.weight"][row], changes[owner]["head.weight"][row])
        assert same_bits(change["head.bias"][row], changes[owner]["head.bias"][row])


def test_rows_without_weight_have_no_influence():
    def change(stray: float) -> Weights:
        one = (weights(1, [1, stray, stray], [1, stray, stray], 0), 1.0, tensor([1.0, 0.0, 0.0]))
        two = (weights(5, [5, 6, 7], [5, 6, 7], 0), 3.0, tensor([3.0, 3.0, 0.0]))
        return mean_change(totals_of(one, two))

    assert same_bits(change(0.0), change(1e30))


def test_positives_decide_under_the_positives_rule():
    """Rule A4: 3 positives against 1, though both clients annotated 4 images."""
    few = client([[1, 0, 0]] * 4, [[1, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]])
    many = client([[1, 0, 0]] * 4, [[1, 0, 0], [1, 0, 0], [1, 0, 0], [0, 0, 0]])
    pairs = (
        (weights(0, [0, 0, 0], [0, 0, 0], 0), few),
        (weights(0, [8, 8, 8], [8, 8, 8], 0), many),
    )
    change = mean_change(
        totals_of(
            *((value, 4.0, head_row_weights("positives", 4.0, data)) for value, data in pairs)
        )
    )
    assert change["head.bias"].tolist() == [6.0, 0.0, 0.0]  # 3 * 8 / 4; classes without: no move
    assert bool(change["head.weight"].isfinite().all())


def test_counted_head_rows_and_their_spare():
    """Rows by counts; where nobody counted any, by the weights before; without those, no move."""
    changes = [weights(1, [1, 2, 3], [1, 2, 3], 0), weights(5, [5, 6, 7], [5, 6, 7], 0)]
    before, counts = ([0.0, 3.0, 0.0], [0.0, 1.0, 0.0]), ([10.0, 0.0, 0.0], [30.0, 0.0, 0.0])
    updates = [
        by_row_counts(weight_parts(change, LAYOUT, 2.0, tensor(rows)), tensor(counted))
        for change, rows, counted in zip(changes, before, counts)
    ]
    accumulator = Accumulator(updates[0], 2)
    for number, update in enumerate(updates):
        accumulator.add(str(number), update)
    change = mean_change(accumulator.totals())
    # (1 * 10 + 5 * 30) / 40, (2 * 3 + 6 * 1) / 4, nothing; the body is as ever.
    assert change["head.bias"].tolist() == [4.0, 3.0, 0.0]
    assert change["head.weight"].tolist() == [[4.0, 4.0], [3.0, 3.0], [0.0, 0.0]]
    assert change["conv"].tolist() == [3.0]
    headless = weight_parts(changes[0], replace(LAYOUT, head=()), 2.0, 0.0)
    assert by_row_counts(headless, torch.ones(3)) == headless


def test_a_network_that_is_all_head_has_a_change():
    layout = replace(LAYOUT, body=(), buffers=())
    head_only = weights(0, [1, 2, 3], [4, 5, 6], 0)
    totals = totals_of((head_only, 2.0, torch.ones(3)), layout=layout)
    assert set(mean_change(totals)) == {"head.weight", "head.bias"}
    assert moved_buffers({}, totals) == {}


@pytest.mark.parametrize("rule", RULES)
def test_identical_clients_give_their_own_weights(rule):
    """Rule A1's idempotence, for every rule."""
    same = weights(0.1, [0.2, 0.3, 0.4], [0.5, 0.6, 0.7], 0.8)
    data = client([[1, 1, 1]] * 3, [[1, 1, 1]] * 3)
    rows = head_row_weights(rule, 3.0, data)
    change = mean_change(totals_of((same, 3.0, rows), (same, 3.0, rows), (same, 3.0, rows)))
    assert same_bits(change, {name: same[name] for name in change})


@pytest.mark.parametrize("rule", ["annotated", "positives"])
def test_a_row_nobody_in_the_cohort_annotates_does_not_move(rule):
    """In a round of two of three clients, the third one's class keeps its row bit for bit."""
    federation = make_federation(rounds=1, backbone="small-resnet")
    method = make_method("fedavg-pl", head_rows=rule)
    engine = federation.engine()
    server = start_server(method, federation.task, engine)
    (round_,) = run_rounds(method, federation.task, engine, server, cohort_size=2)
    absent = ({"site-0", "site-1", "site-2"} - set(round_.cohort)).pop()
    row = int(absent[-1])
    for name in federation.task.layout.head:
        before, after = server["weights"][name], round_.server["weights"][name]
        assert same_bits(before[row], after[row])
        others = [place for place in range(3) if place != row]
        assert bool((before[others] != after[others]).any())


def test_buffers_move_by_the_mean_of_the_clients():
    federation = make_federation(rounds=1, backbone="small-resnet")
    method = make_method("fedavg")
    engine = federation.engine()
    server = start_server(method, federation.task, engine)
    (round_,) = run_rounds(method, federation.task, engine, server)
    for name in federation.task.layout.buffers:
        assert not torch.equal(server["weights"][name], round_.server["weights"][name]), name
        assert bool(round_.server["weights"][name].isfinite().all())
    assert list(round_.server["weights"]) == list(server["weights"])


@pytest.mark.parametrize(
    ("whose", "expected"),
    [("client", [[3.0, 1.0, 1.0], [1.0, 0.5, 1.0]]), ("population", [[3.0, 0.5, 1.0]] * 2)],
)
def test_class_weights_count_a_clients_own_labels_or_those_of_all(
    whose: str, expected: list[list[float]]
):
    # Class 0: 1 of 4 positive, at the first client. Class 1: 2 of 3, at the second. Class 2: none.
    clients = (
        client([[1, 0, 0]] * 4, [[1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 1, 0]]),
        client([[0, 1, 0]] * 3, [[1, 1, 0], [0, 1, 0], [0, 0, 0]]),
    )
    method = make_method("fedavg", positive_weight="odds", positive_weight_from=whose)
    accumulator = Accumulator(method.survey(clients[0]), len(clients))
    for number, each in enumerate(clients):
        accumulator.add(str(number), method.survey(each))
    task = make_federation().task
    server = method.init_server(read_weights(task.build_network()), task, accumulator.totals())
    received = method.broadcast(server)
    halves: list[Any] = [
        SimpleNamespace(received=received, state=method.init_client(each)) for each in clients
    ]
    assert [method.class_weight(each).tolist() for each in halves] == expected
