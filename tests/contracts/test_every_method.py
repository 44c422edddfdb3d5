"""Properties that every method in the METHODS table has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.tiny_federation import METHOD_NAMES, Federation, make_federation, make_method

from fedquilt.core.payload import Mean, Part, addressed
from fedquilt.core.tree import Tree, clone, leaves, same_bits
from fedquilt.runs.checkpoint import Checkpoints
from fedquilt.runs.object_store import ObjectStore
from fedquilt.training.client import LOSS_PART, Workspace, run_client
from fedquilt.training.method import Method, State
from fedquilt.training.rounds import run_rounds, start_server

every_method = pytest.mark.parametrize("name", METHOD_NAMES)


def _states(federation: Federation, states: object) -> dict[str, State]:
    return {client: states.get(client) for client in sorted(federation.clients)}


def _train_on_disk(
    federation: Federation, method: Method, folder: Path, cohort_size: int, stop_after: int
) -> None:
    checkpoints = Checkpoints(folder)
    engine = federation.engine(checkpoints)
    server = start_server(method, federation.task, engine)
    for round_ in run_rounds(method, federation.task, engine, server, cohort_size=cohort_size):
        checkpoints.advance(round_.index + 1, round_.server)
        checkpoints.save()
        if round_.index + 1 == stop_after:
            return


@every_method
@pytest.mark.parametrize("cohort_size", [3, 2])
@pytest.mark.parametrize("keep_optimizer", [False, True])
def test_resuming_changes_no_bit(
    name: str, cohort_size: int, keep_optimizer: bool, tmp_path: Path
) -> None:
    method = make_method(name)
    method = replace(method, training=replace(method.training, keep_optimizer=keep_optimizer))
    federation = make_federation(rounds=4).fitted(method)
    _train_on_disk(federation, method, tmp_path / "whole", cohort_size, stop_after=4)
    whole = Checkpoints(tmp_path / "whole")
    expected, _ = whole.restore()

    _train_on_disk(federation, method, tmp_path / "cut", cohort_size, stop_after=2)
    resumed = Checkpoints(tmp_path / "cut")  # a new process would begin like this
    saved, complaints = resumed.restore()
    assert complaints == []
    assert saved is not None
    assert saved.round_count == 2
    for round_ in run_rounds(
        method,
        federation.task,
        federation.engine(resumed),
        saved.server,
        first_round=saved.round_count,
        cohort_size=cohort_size,
    ):
        resumed.advance(round_.index + 1, round_.server)

    assert expected is not None
    assert same_bits(round_.server, expected.server)
    assert same_bits(_states(federation, resumed), _states(federation, whole))


@every_method
@pytest.mark.parametrize("garbage", [1, 7])
def test_garbage_in_unannotated_labels_changes_no_bit(name: str, garbage: int) -> None:
    annotated = ((0, 1), (1,), (0, 2))
    clean = make_federation(annotated=annotated).train(make_method(name))
    poisoned = make_federation(annotated=annotated, garbage=garbage).train(make_method(name))
    assert same_bits(clean, poisoned)


@every_method
def test_annotated_labels_do_matter(name: str) -> None:
    """The check above means something only if labels reach the training at all."""
    method = make_method(name)
    federation = make_federation().fitted(method)
    data = federation.clients["site-0"]
    flipped = replace(data, labels=torch.where(data.known, 1 - data.labels, data.labels))
    changed = Federation(federation.task, {**federation.clients, "site-0": flipped})
    assert not same_bits(_client_models(federation, method), _client_models(changed, method))


def _client_models(federation: Federation, method: Method) -> Tree:
    engine = federation.engine()
    server = start_server(method, federation.task, engine)
    for round_ in run_rounds(method, federation.task, engine, server):
        server = round_.server
    return dict(engine.personal_weights(method, method.broadcast(server)))


@every_method
def test_the_order_of_clients_changes_no_bit(name: str) -> None:
    method = make_method(name)
    forward = make_federation().train(method, cohort_size=2)
    backward = make_federation(reverse=True).train(method, cohort_size=2)
    assert same_bits(forward, backward)


@every_method
@pytest.mark.parametrize("backbone", ["small-cnn", "small-resnet"])
def test_the_declared_parts_are_the_ones_sent(name: str, backbone: str) -> None:
    method = make_method(name)
    federation = make_federation(backbone=backbone).fitted(method)
    task = federation.task
    server = start_server(method, task, federation.engine())
    payload = method.broadcast(server)
    declared = method.expected_update(addressed(payload, "site-0"), task)
    workspace = Workspace.of(task, torch.device("cpu"))
    for client, data in federation.clients.items():
        received = addressed(payload, client)
        for round_index in range(3):  # every stage of a staged method
            update, _ = run_client(method, task, workspace, data, received, {}, round_index)
            sent = {part: value for part, value in update.items() if part != LOSS_PART}
            assert _outline(sent) == _outline(declared), client


def _outline(update: dict[str, Part]) -> dict[str, object]:
    return {
        name: (
            type(part).__name__,
            {path: (tuple(leaf.shape), leaf.dtype) for path, leaf in leaves(part.value)},
            tuple(torch.as_tensor(part.weight).shape) if isinstance(part, Mean) else None,
        )
        for name, part in update.items()
    }


@every_method
def test_states_and_messages_need_no_pickle(name: str, tmp_path: Path) -> None:
    """Everything a method keeps or sends is a tree of tensors that safetensors can hold."""
    method = make_method(name)
    federation = make_federation().fitted(method)
    server = federation.train(method)
    store = ObjectStore(tmp_path)
    workspace = Workspace.of(federation.task, torch.device("cpu"))
    received = addressed(method.broadcast(server), "site-1")
    data = federation.clients["site-1"]
    _, state = run_client(method, federation.task, workspace, data, received, {}, 2)
    for tree in (server, received, state):
        assert same_bits(store.get(store.put(tree)), tree)


@every_method
def test_states_in_memory_and_on_disk_agree(name: str, tmp_path: Path) -> None:
    method = make_method(name)
    federation = make_federation(rounds=3).fitted(method)
    _train_on_disk(federation, method, tmp_path, cohort_size=3, stop_after=3)
    saved, _ = Checkpoints(tmp_path).restore()
    assert saved is not None
    assert same_bits(saved.server, federation.train(method))


@every_method
def test_the_received_payload_is_left_as_it_was(name: str) -> None:
    """In one process all clients share the broadcast: whoever writes to it would change others."""
    method = make_method(name)
    federation = make_federation().fitted(method)
    server = federation.train(method)
    received = addressed(method.broadcast(server), "site-0")
    before = clone(received)
    workspace = Workspace.of(federation.task, torch.device("cpu"))
    data = federation.clients["site-0"]
    run_client(method, federation.task, workspace, data, received, {}, 2)
    assert same_bits(before, received)


@every_method
def test_rounds_depend_on_the_planned_length_only_if_the_method_says_so(name: str) -> None:
    """A finished run of another method can be extended to the bits of a run planned so long."""
    method = make_method(name)
    ends = []
    for planned in (2, 3):
        federation = make_federation(rounds=planned).fitted(method)
        engine = federation.engine()
        server = start_server(method, federation.task, engine)
        rounds = [each.server for each in run_rounds(method, federation.task, engine, server)]
        ends.append(rounds[1])
    assert same_bits(*ends) is not method.plans_by_round_count
