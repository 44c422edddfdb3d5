"""The policy on changed rows of unannotated classes is right and documented for every method."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.remote_sites import make_clients
from support.tiny_federation import METHOD_NAMES, make_method

from fedquilt.core.payload import addressed
from fedquilt.core.tree import leaves
from fedquilt.deploy.server.unannotated_rows import (
    HEAD,
    ROW_KEEPING_METHODS,
    WHY_ROWS_CHANGE,
    keeps_unannotated_rows,
    row_policy,
)
from fedquilt.methods.fedavg import FedAvg
from fedquilt.methods.fedlgt import FedLGT
from fedquilt.training.client import Workspace, run_client
from fedquilt.training.local_training import LocalTraining
from fedquilt.training.method import Method
from fedquilt.training.rounds import run_rounds, start_server

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "privacy.md"
# Honest rows change here too, but not within three rounds of a few images: no pseudo-label is
# confident enough.
RARELY_CHANGING = {"fedlsm"}


def test_the_page_lists_every_method_under_its_policy() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("### What the server refuses")[2]
    rows = re.findall(r"^\| (refused|without weight|not sent|accepted) \| ([^|]+) \|", text, re.M)
    listed = defaultdict(set)
    for handling, names in rows:
        listed[handling] |= set(names.split(", "))
    expected = defaultdict(set)
    for name in METHOD_NAMES:
        expected[row_policy(name).handling].add(name)
    assert expected.pop("not for studies") == {"centralised", "full-labels"}
    assert listed == expected


def test_every_accepted_method_has_a_reason() -> None:
    accepted = {name for name in METHOD_NAMES if row_policy(name).handling == "accepted"}
    assert accepted - set(ROW_KEEPING_METHODS) == set(WHY_ROWS_CHANGE)
    for name in accepted:
        assert "nothing is known" not in row_policy(name).reason


@pytest.mark.parametrize("name", sorted({*ROW_KEEPING_METHODS, *WHY_ROWS_CHANGE} - RARELY_CHANGING))
def test_honest_rows_change_only_under_the_listed_methods(name: str) -> None:
    skipping = {} if name in WHY_ROWS_CHANGE else {"unannotated": "skip"}
    method = make_method(name, **skipping)
    assert keeps_unannotated_rows(method) == (name in ROW_KEEPING_METHODS)
    assert _changes_unannotated_rows(method) == (name in WHY_ROWS_CHANGE)


def _changes_unannotated_rows(method: Method) -> bool:
    federation = make_clients(method)
    task, engine = federation.task, federation.engine()
    workspace = Workspace.of(task, torch.device("cpu"))
    server = start_server(method, task, engine)
    states: dict[str, dict[str, object]] = {}
    for index in range(task.round_count):
        payload = method.broadcast(server)
        for client, data in federation.clients.items():
            update, states[client] = run_client(
                *(method, task, workspace, data, addressed(payload, client)),
                states.get(client, {}),
                index,
            )
            unannotated = ~data.known.any(0)
            if any(bool(leaf[unannotated].any()) for _, leaf in leaves(update[HEAD].value)):
                return True
        server = next(iter(run_rounds(method, task, engine, server, first_round=index))).server
    return False


def test_settings_that_change_every_row_lift_the_policy() -> None:
    skipping = FedAvg(unannotated="skip")
    assert keeps_unannotated_rows(skipping)
    assert not keeps_unannotated_rows(FedAvg(unannotated="negative"))
    decaying = LocalTraining(weight_decay=1e-4)
    assert not keeps_unannotated_rows(replace(skipping, training=decaying))
    without_decay = replace(decaying, decay_unannotated_rows=False)
    assert keeps_unannotated_rows(replace(skipping, training=without_decay))
    assert not keeps_unannotated_rows(FedLGT(text_encoder="learned"))
