"""For every method it is said what becomes of a row that its site should not have changed."""

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
    MOVED_BY,
    STILL,
    keeps_rows_still,
    row_rule,
)
from fedquilt.methods.fedavg import FedAvg
from fedquilt.methods.fedlgt import FedLGT
from fedquilt.training.client import Workspace, run_client
from fedquilt.training.local_training import LocalTraining
from fedquilt.training.method import Method
from fedquilt.training.rounds import run_rounds, start_server

PAGE = Path(__file__).resolve().parents[2] / "docs" / "privacy.md"
# Honest rows move under these, but not within three rounds of a few images: nobody is sure enough.
SELDOM = {"fedlsm"}


def test_the_page_lists_every_method_where_the_code_has_it() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("### What the server refuses")[2]
    rows = re.findall(r"^\| (refused|without weight|not sent|accepted) \| ([^|]+) \|", text, re.M)
    listed = defaultdict(set)
    for fate, names in rows:
        listed[fate] |= set(names.split(", "))
    expected = defaultdict(set)
    for name in METHOD_NAMES:
        expected[row_rule(name).fate].add(name)
    assert expected.pop("not for studies") == {"centralised", "full-labels"}
    assert listed == expected


def test_no_reason_is_missing_and_none_is_left_over() -> None:
    accepted = {name for name in METHOD_NAMES if row_rule(name).fate == "accepted"}
    assert accepted - set(STILL) == set(MOVED_BY)
    for name in accepted:
        assert "nothing is known" not in row_rule(name).why


@pytest.mark.parametrize("name", sorted({*STILL, *MOVED_BY} - SELDOM))
def test_honest_rows_move_where_and_only_where_it_is_said(name: str) -> None:
    skipping = {} if name in MOVED_BY else {"unannotated": "skip"}
    method = make_method(name, **skipping)
    assert keeps_rows_still(method) == (name in STILL)
    assert _moves_foreign_rows(method) == (name in MOVED_BY)


def _moves_foreign_rows(method: Method) -> bool:
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
            foreign = ~data.known.any(0)
            if any(bool(leaf[foreign].any()) for _, leaf in leaves(update[HEAD].value)):
                return True
        server = next(iter(run_rounds(method, task, engine, server, first_round=index))).server
    return False


def test_settings_that_move_every_row_lift_the_rule() -> None:
    skipping = FedAvg(unannotated="skip")
    assert keeps_rows_still(skipping)
    assert not keeps_rows_still(FedAvg(unannotated="negative"))
    decaying = LocalTraining(weight_decay=1e-4)
    assert not keeps_rows_still(replace(skipping, training=decaying))
    resting = replace(decaying, decay_unannotated_rows=False)
    assert keeps_rows_still(replace(skipping, training=resting))
    assert not keeps_rows_still(FedLGT(text_encoder="learned"))
