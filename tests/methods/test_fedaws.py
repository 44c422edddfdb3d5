"""FedAwS: positives only, own rows only, and a server that spreads the rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.logit_client import batch_of, client_of, holding
from support.tiny_federation import Federation, make_federation, make_method
from support.tiny_runs import make_run
from torch import Tensor, tensor

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Update, addressed
from fedquilt.core.tree import byte_count, flatten, same_bits
from fedquilt.losses.spread_out import correlation_penalty
from fedquilt.methods.fedaws import ROWS, FedAwS
from fedquilt.models.class_rows import minimize_on_sphere
from fedquilt.models.heads.sphere import on_sphere
from fedquilt.training.client import Workspace, open_round, run_client
from fedquilt.training.method import Method, State
from fedquilt.training.rounds import run_rounds, start_server

CPU = torch.device("cpu")


def started(method: Method, **settings: object) -> tuple[Federation, State]:
    federation = make_federation(**settings).fitted(method)  # type: ignore[arg-type]
    return federation, start_server(method, federation.task, federation.engine())


def one_round(method: Method, federation: Federation, server: State, client: str) -> Update:
    received = addressed(method.broadcast(server), client)
    workspace = Workspace.of(federation.task, CPU)
    data = federation.clients[client]
    return run_client(method, federation.task, workspace, data, received, {}, 0)[0]


def test_loss_by_hand() -> None:
    scores = tensor([[0.5, 0.2], [0.95, 0.7]])
    labels = tensor([[1.0, 0.0], [1.0, 1.0]])
    method = FedAwS()

    def loss(known: Tensor) -> float:
        local = client_of(method, holding(labels, known), 4 * (scores - 0.5))
        return method.loss(local, batch_of(labels, known)).item()

    everything = torch.ones(2, 2, dtype=torch.bool)
    # (0.9 - 0.5)^2 = 0.16, 0 beyond 0.9, (0.9 - 0.7)^2 = 0.04; the negative has no effect.
    assert loss(everything) == pytest.approx(0.20 / 3, abs=1e-6)
    assert loss(labels == 1) == pytest.approx(0.20 / 3, abs=1e-6)
    # Unannotated: the last positive.
    assert loss(tensor([[True, True], [True, False]])) == pytest.approx(0.08, abs=1e-6)


def test_steps_draw_images_with_a_positive_only() -> None:
    method = make_method("fedaws")
    federation, server = started(method)
    data = federation.clients["site-1"]
    received = addressed(method.broadcast(server), "site-1")
    local = open_round(
        method, federation.task, Workspace.of(federation.task, CPU), data, received, {}, 0
    )
    (pool,) = method.pools(local)
    assert pool.rows.tolist() == (data.labels[:, 1] == 1).nonzero().flatten().tolist()
    barren = replace(local, data=replace(data, labels=torch.zeros_like(data.labels)))
    assert method.pools(barren)[0].rows is None  # there must be some batch


def test_a_client_receives_its_own_rows_and_nothing_of_others() -> None:
    method = make_method("fedaws")
    _, server = started(method, annotated=((0, 2), (1,)))
    payload = method.broadcast(server)
    rows = server["weights"][ROWS]
    first, second = (addressed(payload, name) for name in ("site-0", "site-1"))
    assert torch.equal(first["own"]["rows"], rows[[0, 2]])
    assert torch.equal(second["own"]["rows"], rows[[1]])
    assert ROWS not in first["weights"]
    others = rows.clone()
    others[1] *= -1
    changed = method.broadcast({**server, "weights": {**server["weights"], ROWS: others}})
    assert same_bits(addressed(changed, "site-0"), first)
    assert not same_bits(addressed(changed, "site-1"), second)
    # One row of d float32 numbers less for the second, and none for an unknown client.
    width = rows.shape[1]
    assert byte_count(first) - byte_count(second) == 4 * width
    assert addressed(payload, "stranger")["own"]["rows"].shape == (0, width)


def test_rows_of_others_are_zeros_at_a_client_and_come_back_without_weight() -> None:
    method = make_method("fedaws")
    federation, server = started(method, annotated=((0, 2), (1,)))
    received = addressed(method.broadcast(server), "site-1")
    model = method.client_weights(received, {})
    assert model[ROWS][[0, 2]].tolist() == torch.zeros(2, model[ROWS].shape[1]).tolist()
    head = one_round(method, federation, server, "site-1")["head"]
    positives = int((federation.clients["site-1"].labels[:, 1] == 1).sum())
    assert head.weight.tolist() == [0.0, positives, 0.0]
    assert not head.value[ROWS][[0, 2]].any()
    assert head.value[ROWS][1].any()


@pytest.mark.parametrize("rule", ["positives", "all"])
def test_a_client_missing_in_the_survey_has_no_weight_in_any_row(rule: str) -> None:
    """It has received no rows, so it has none to change."""
    method = make_method("fedaws", head_rows=rule)
    federation, server = started(method, annotated=((0, 2), (1,)))
    guest = replace(federation.clients["site-1"], name="guest")
    grown = Federation(federation.task, {**federation.clients, "guest": guest})
    update = one_round(method, grown, server, "guest")
    assert not update["head"].weight.any()
    assert one_round(method, grown, server, "site-1")["head"].weight.any()


def test_a_clients_row_is_normalised_after_each_step() -> None:
    method = make_method("fedaws")
    federation, server = started(method)
    change = one_round(method, federation, server, "site-0")["head"].value[ROWS][0]
    assert (server["weights"][ROWS][0] + change).norm().item() == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("variant", [{}, {"nearest": 1}, {"strength": 0.0}, {"head_rows": "all"}])
def test_all_rows_keep_length_one(variant: dict[str, object]) -> None:
    rows = make_federation().train(make_method("fedaws", **variant))["weights"][ROWS]
    assert torch.allclose(rows.norm(dim=1), torch.ones(3), atol=1e-5)


def test_a_round_is_the_clients_mean_row_then_a_spreading_step() -> None:
    """Sites 0 and 1 share class 0; nobody in the cohort has class 2, which is spread too.

    One step of rate 10 * 0.01 on the penalty of all pairs.
    """
    method = make_method("fedaws")
    federation, server = started(method, annotated=((0,), (0, 1), (2,)))
    engine = federation.engine()
    payload = method.broadcast(server)
    totals = engine.exchange(method, payload, 0, ["site-0", "site-1"])
    updates = [one_round(method, federation, server, f"site-{k}") for k in range(2)]
    counts = [update["head"].weight for update in updates]
    changes = [update["head"].value[ROWS] for update in updates]
    rows = server["weights"][ROWS].clone()
    both = counts[0][0] + counts[1][0]
    rows[0] += ((counts[0][0] * changes[0][0] + counts[1][0] * changes[1][0]) / both).float()
    rows[1] += changes[1][1]
    expected = minimize_on_sphere(
        on_sphere(rows), lambda some: correlation_penalty(some, torch.zeros(3, 3), 1.0), 0.1, 1
    )
    found = method.update(server, totals)["weights"][ROWS]
    assert torch.allclose(found, expected, atol=1e-6)
    assert not torch.equal(found[2], server["weights"][ROWS][2])


def test_clients_with_positives_count_equally_or_by_their_images_with_positives() -> None:
    federation = make_federation()
    positives = int((federation.clients["site-0"].labels[:, 0] == 1).sum())
    for weighting, expected in (("uniform", 1.0), ("samples", float(positives))):
        method = make_method("fedaws", weighting=weighting)
        fitted, server = started(method)
        assert one_round(method, fitted, server, "site-0")["body"].weight == expected
    assert positives > 1


def test_variants_are_those_of_the_paper() -> None:
    assert FedAwS(**FedAwS.variants["mining"]).nearest == 10
    assert FedAwS(**FedAwS.variants["positives-only"]).strength == 0  # B1
    assert FedAwS(**FedAwS.variants["random-rows"]).fixed_rows  # B2
    assert (FedAwS().margin, FedAwS().strength, FedAwS().distance) == (0.9, 10.0, 1.0)


def test_without_strength_rows_are_the_clients_own() -> None:
    method = make_method("fedaws", strength=0.0)
    federation, server = started(method)
    engine = federation.engine()
    totals = engine.exchange(method, method.broadcast(server), 0, ["site-0", "site-1", "site-2"])
    found = method.update(server, totals)["weights"][ROWS]
    for number in range(3):
        change = one_round(method, federation, server, f"site-{number}")["head"].value[ROWS]
        expected = server["weights"][ROWS][number] + change[number]
        torch.testing.assert_close(found[number], expected, atol=1e-6, rtol=0)


def without_positives(federation: Federation, client: str, column: int) -> Federation:
    data = federation.clients[client]
    labels = data.labels.clone()
    labels[:, column] = 0
    return Federation(federation.task, {**federation.clients, client: replace(data, labels=labels)})


def test_a_client_without_positives_changes_no_bit() -> None:
    method = make_method("fedaws")
    federation = without_positives(make_federation(annotated=((0, 1), (1, 2), (2,))), "site-2", 2)
    idle = federation.clients["site-2"]
    other = replace(idle, images=255 - idle.images)
    mirrored = Federation(federation.task, {**federation.clients, "site-2": other})
    assert same_bits(federation.train(method), mirrored.train(method))


def test_a_cohort_without_any_positive_does_no_harm() -> None:
    method = make_method("fedaws")
    federation = without_positives(make_federation(), "site-2", 2).fitted(method)
    engine = federation.engine()
    server = start_server(method, federation.task, engine)
    totals = engine.exchange(method, method.broadcast(server), 0, ["site-2"])
    new = method.update(server, totals)
    body = [name for name in new["weights"] if name != ROWS]
    assert all(torch.equal(new["weights"][name], server["weights"][name]) for name in body)


def test_a_class_without_positives_takes_no_part() -> None:
    method = make_method("fedaws")
    federation = without_positives(make_federation(), "site-2", 2).fitted(method)
    engine = federation.engine()
    server = start_server(method, federation.task, engine)
    flipped = {**server["weights"], ROWS: server["weights"][ROWS] * tensor([[1.0], [1.0], [-1.0]])}
    before = server["weights"][ROWS]
    after, other = (
        [*run_rounds(method, federation.task, federation.engine(), start)][-1].server["weights"]
        for start in (server, {**server, "weights": flipped})
    )
    assert torch.equal(after[ROWS][2], before[2])
    assert torch.equal(after[ROWS][:2], other[ROWS][:2])
    assert not torch.equal(after[ROWS][:2], before[:2])


def test_fixed_rows_are_never_sent_nor_moved() -> None:
    method = make_method("fedaws", fixed_rows=True)
    federation, server = started(method)
    update = one_round(method, federation, server, "site-0")
    assert "head" not in update
    momentum = replace(method, server_step=replace(method.server_step, momentum=0.9))
    for each in (method, momentum):
        trained = federation.train(each)
        assert torch.equal(trained["weights"][ROWS], server["weights"][ROWS])
        assert not same_bits(trained["weights"], server["weights"])


def test_client_names_may_contain_any_letters() -> None:
    method = make_method("fedaws")
    federation = make_federation()
    names = ["ward 1/left", "ward%2F1", "ä"]
    clients = {n: replace(d, name=n) for n, d in zip(names, federation.clients.values())}
    task = replace(federation.task, clients=tuple(clients))
    server = Federation(task, clients).train(method)
    flatten(server)  # raises for a name that cannot be saved
    assert addressed(method.broadcast(server), "ward 1/left")["own"]["classes"].tolist() == [
        True,
        False,
        False,
    ]


def test_a_finished_run_has_all_rows(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "fedaws")
    assert run.models.card["model"]["head"] == "cosine"
    rows = run.models.network(None).head.weight
    assert torch.allclose(rows.norm(dim=1), torch.ones(3), atol=1e-5)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(UserError, match="nearest must be positive or left out, found 0"):
        FedAwS(nearest=0)
