"""Surgical Aggregation: a head row is the plain mean of its annotators' rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from support.tiny_federation import make_federation, make_method

from fedquilt.core.errors import UserError
from fedquilt.core.tree import Weights, same_bits
from fedquilt.models.network import read_weights
from fedquilt.training.averaging import head_row_weights
from fedquilt.training.client import Workspace, run_client
from fedquilt.training.method import Method
from fedquilt.training.rounds import start_server


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


def test_a_row_without_an_annotator_in_the_cohort_is_left_unchanged() -> None:
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


def test_the_head_goes_first_with_the_backbone_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first stage of the first round the head alone has moved; later rounds have none."""
    method = make_method("surgical-aggregation", head_steps=5)
    federation = make_federation(annotated=((0, 1, 2),))
    task, data = federation.task, federation.clients["site-0"]
    workspace = Workspace.of(task, torch.device("cpu"))
    received = {"weights": read_weights(task.build_network())}
    first, whole = method.stages(0)
    assert first.steps == 5
    assert method.stages(1) == (whole,) == make_method("fedavg").stages(0)
    monkeypatch.setattr(type(method), "stages", lambda self, round_index: (first,))
    update, _ = run_client(method, task, workspace, data, received, {}, 0)
    assert not any(bool(leaf.any()) for leaf in update["body"].value.values())
    assert all(bool(leaf.any()) for leaf in update["head"].value.values())
    assert update["training_loss"].weight == 5.0  # type: ignore[union-attr]


def test_a_first_round_of_the_head_changes_the_result() -> None:
    federation = make_federation(rounds=1)
    plain = federation.train(make_method("surgical-aggregation"))
    assert not same_bits(federation.train(make_method("surgical-aggregation", head_steps=3)), plain)
    with pytest.raises(UserError, match="head_steps must be 0 or more, found -1"):
        make_method("surgical-aggregation", head_steps=-1)
