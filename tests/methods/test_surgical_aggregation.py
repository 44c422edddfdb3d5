"""Surgical Aggregation: a head row is the plain mean of its annotators' rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny_federation import make_federation, make_method

from fedquilt.aggregation import head_row_weights
from fedquilt.method import Method
from fedquilt.rounds import start_server
from fedquilt.tree import Weights, same_bits


def test_annotators_count_alike_whatever_they_hold() -> None:
    data = make_federation(annotated=((0, 2),), images_each=30).clients["site-0"]
    sparse = replace(data, known=data.known & (torch.arange(30) < 4)[:, None])
    assert head_row_weights("annotators", 1.0, data).tolist() == [1.0, 0.0, 1.0]
    assert head_row_weights("annotators", 1.0, sparse).tolist() == [1.0, 0.0, 1.0]
    assert head_row_weights("annotators", 30.0, data).tolist() == [30.0, 0.0, 30.0]


def _after_a_round(method: Method, cohort: list[str]) -> tuple[Weights, Weights]:
    """Weights before and after; clients 0 and 1 share class 0, client 1 alone has class 1."""
    federation = make_federation(annotated=((0,), (0, 1), (2,)))
    engine = federation.engine()
    server = start_server(method, federation.task, engine)
    totals = engine.exchange(method, method.broadcast(server), 0, cohort)
    return server["weights"], method.update(server, totals)["weights"]


def _decaying(name: str) -> Method:
    """With weight decay, rows move at clients that do not annotate their class."""
    method = make_method(name, weighting="uniform", positive_weight="none")
    return replace(method, training=replace(method.training, weight_decay=0.1))


@pytest.mark.parametrize("entry", ["head.weight", "head.bias"])
def test_rows_are_means_over_their_annotators(entry: str) -> None:
    method = _decaying("surgical-aggregation")
    before, together = _after_a_round(method, ["site-0", "site-1", "site-2"])
    alone = [_after_a_round(method, [f"site-{k}"])[1][entry] for k in range(3)]
    torch.testing.assert_close(together[entry][0], (alone[0][0] + alone[1][0]) / 2)
    torch.testing.assert_close(together[entry][1], alone[1][1])
    torch.testing.assert_close(together[entry][2], alone[2][2])
    assert not torch.equal(together[entry], before[entry])


def test_a_row_without_an_annotator_in_the_cohort_rests() -> None:
    before, after = _after_a_round(_decaying("surgical-aggregation"), ["site-0"])
    assert torch.equal(before["head.weight"][1:], after["head.weight"][1:])
    assert not torch.equal(before["head.weight"][0], after["head.weight"][0])
    _, plain = _after_a_round(_decaying("fedavg-pl"), ["site-0"])
    assert not torch.equal(before["head.weight"][1:], plain["head.weight"][1:])


def test_with_full_labels_it_is_the_uniform_mean_bit_for_bit() -> None:
    federation = make_federation(annotated=((0, 1, 2), (0, 1, 2)))
    uniform = make_method("fedavg", weighting="uniform", positive_weight="none")
    found = federation.train(make_method("surgical-aggregation"))
    assert same_bits(found, federation.train(uniform))
