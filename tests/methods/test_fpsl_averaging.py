"""FPSL's average of head rows, and the networks it refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from support.pixel_logits import make_local
from support.tiny_federation import METHOD_NAMES, Federation, make_federation, make_method
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Mean, addressed
from fedquilt.core.totals import Accumulator
from fedquilt.methods.fpsl import FPSL
from fedquilt.models.network import Layout
from fedquilt.training.averaging import SPARE_ROWS, head_row_weights
from fedquilt.training.client import Workspace, run_client
from fedquilt.training.rounds import start_server


def aggregated(changes: list[float], rule: str = "annotated") -> Tensor:
    """The change of head rows, (3, weight and bias), when site i moves everything by changes[i].

    Site 0 annotates classes 0 and 1, site 1 class 1, site 2 class 2; powers of two stay exact.
    """
    method = make_method("fpsl", head_rows=rule)
    federation = make_federation(annotated=((0, 1), (1,), (2,)))
    layout = Layout(("body",), ("head.weight", "head.bias"), ())
    old = {"body": torch.zeros(1), "head.weight": torch.zeros(3, 1), "head.bias": torch.zeros(3)}
    server = {"weights": old}
    updates = []
    for data, change in zip(federation.clients.values(), changes):
        local = make_local(method, data.known, data.labels)
        local.received, local.layout = {"weights": old}, layout
        updates.append(method.finish(local, {k: v + change for k, v in old.items()}, 1)[0])
    accumulator = Accumulator(updates[0], 3)
    for number, update in enumerate(updates):
        accumulator.add(str(number), update)
    new = method.update(server, accumulator.totals())["weights"]
    return torch.stack([new["head.weight"][:, 0], new["head.bias"]], dim=1)


def test_a_class_with_one_annotator_has_its_row() -> None:
    found = aggregated([0.5, 8.0, 0.25])
    assert found[0].tolist() == [0.5, 0.5]
    assert found[2].tolist() == [0.25, 0.25]
    assert found[1].tolist() == [4.25, 4.25]  # two annotators with 21 images each
    assert torch.equal(aggregated([0.5, -77.0, 0.25])[[0, 2]], found[[0, 2]])


def test_weights_of_a_class_sum_to_one() -> None:
    assert aggregated([2.0, 2.0, 2.0]).tolist() == [[2.0, 2.0]] * 3
    assert aggregated([2.0, 2.0, 2.0], "positives").tolist() == [[2.0, 2.0]] * 3


def test_rows_count_by_annotated_images_or_by_positives() -> None:
    data = make_federation(annotated=((0, 2),)).clients["site-0"]
    positives = (data.labels * data.known).sum(0).tolist()
    assert head_row_weights(make_method("fpsl").head_rows, 21.0, data).tolist() == [21, 0, 21]
    assert head_row_weights("positives", 21.0, data).tolist() == positives


# They send no head rows, each for its reason; rscfed gathers whole models and refuses the rule.
WITHOUT_ROWS = {"local-only", "spherefed", "flexible-fl", "fednca-ml", "rscfed"}


@pytest.mark.parametrize("name", sorted(set(METHOD_NAMES) - WITHOUT_ROWS))
def test_other_methods_can_have_its_averaging(name: str) -> None:
    """21 images at a site that annotates classes 0 and 1 of 3."""
    method = make_method(name, head_rows="annotated")
    federation = make_federation(annotated=((0, 1), (1, 2))).fitted(method)
    task = federation.task
    payload = method.broadcast(start_server(method, task, federation.engine()))
    received, data = addressed(payload, "site-0"), federation.clients["site-0"]
    workspace = Workspace.of(task, torch.device("cpu"))
    update, _ = run_client(method, task, workspace, data, received, {}, 2)
    # Where rows count by what was drawn, as in fedlsm, the rule is for rows that nobody drew.
    rows = update.get(SPARE_ROWS, update["head"])
    assert isinstance(rows, Mean)
    assert torch.as_tensor(rows.weight).tolist() == [21, 21, 0]


def test_a_row_without_an_annotator_in_the_cohort_is_left_unchanged() -> None:
    method = make_method("fpsl")
    method = replace(method, training=replace(method.training, weight_decay=0.1))
    federation = make_federation()
    engine = federation.engine()
    server = start_server(method, federation.task, engine)
    totals = engine.exchange(method, method.broadcast(server), 0, ["site-0"])
    before, after = server["weights"], method.update(server, totals)["weights"]
    for entry in ("head.weight", "head.bias"):
        assert torch.equal(before[entry][1:], after[entry][1:])
        assert not torch.equal(before[entry][0], after[entry][0])


def test_positive_weights_are_odds_and_bounded() -> None:
    labels = torch.zeros(300, 3)
    labels[0, 0], labels[:75, 1] = 1, 1
    data = make_local(FPSL(), torch.ones(300, 3, dtype=torch.bool), labels).data
    # 299 negatives to 1 positive, capped; 225 to 75; no positive at all.
    weight = FPSL().init_client(data)["positive_weight"]
    assert weight.tolist() == [100.0, 3.0, 1.0]


def test_a_head_that_cannot_be_trained_apart_is_refused() -> None:
    method = make_method("fpsl")
    federation = make_federation()
    task = replace(federation.task, model=replace(federation.task.model, head="sphere"))
    with pytest.raises(UserError, match=r"found a SphereHead; .* decoupling = false"):
        Federation(task, federation.clients).train(method)
    Federation(task, federation.clients).train(make_method("fpsl", decoupling=False))
