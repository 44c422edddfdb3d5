"""Robust rules: every method trains under them, alike in a simulation and at remote sites."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.remote_sites import CallingChannel, make_clients, make_engine, make_sites, make_study
from support.tiny_federation import METHOD_NAMES, Federation, make_method

from fedquilt.core.aggregation_rules import AggregationRules
from fedquilt.core.errors import UserError
from fedquilt.core.payload import Mean, Sum, Update
from fedquilt.core.robust import Robust
from fedquilt.core.tree import same_bits, tree_map
from fedquilt.deploy.protocol.messages import pack, unpack, update_message, update_of
from fedquilt.engines.sequential import SequentialEngine
from fedquilt.training.method import Method, State
from fedquilt.training.rounds import Engine, run_rounds, start_server

KRUM = Robust(rule="krum")
POOLED = ("centralised", "full-labels")  # bounds, which no study has
LIAR = "site-1"


def _trained(method: Method, federation: Federation, engine: Engine) -> State:
    server = start_server(method, federation.task, engine)
    for round_ in run_rounds(method, federation.task, engine, server):
        server = round_.server
    return server


def _lied(site: str, reply: bytes) -> list[bytes]:
    """The liar's update with every mean turned round."""
    message = unpack(reply)
    if site != LIAR or message.facts["kind"] != "train":
        return [reply]
    update: Update = {
        name: Mean(tree_map(lambda leaf: -leaf, part.value), part.weight)
        if isinstance(part, Mean) and name in ("body", "head", "buffers")
        else part
        for name, part in update_of(message).items()
    }
    assert not any(isinstance(part, Sum) for part in update.values())
    return [pack(update_message(message.facts, update))]


@pytest.mark.parametrize("name", [name for name in METHOD_NAMES if name not in POOLED])
def test_a_simulation_and_a_study_end_with_the_same_bits(name: str, tmp_path: Path) -> None:
    method = make_method(name)
    federation = make_clients(method, rounds=2)
    rules = AggregationRules(robust=KRUM)
    expected = _trained(
        method, federation, SequentialEngine(federation.task, federation.clients, rules=rules)
    )
    study = make_study(method, rounds=2, recipe={"robust": {"rule": "krum"}})
    engine = make_engine(study, CallingChannel(make_sites(study, tmp_path)), tmp_path)
    assert same_bits(_trained(method, federation, engine), expected)


def test_a_liar_is_dropped_from_the_body_and_named_in_the_audit_log(tmp_path: Path) -> None:
    method = make_method("fedavg-pl")
    federation = make_clients(method, rounds=1)
    study = make_study(method, rounds=1, recipe={"robust": {"rule": "krum"}})
    channel = CallingChannel(make_sites(study, tmp_path), _lied)
    _trained(method, federation, make_engine(study, channel, tmp_path))
    events = map(json.loads, (tmp_path / "server.jsonl").read_text().splitlines())
    dropped = {event["site"]: event["parts"] for event in events if event["event"] == "dropped"}
    assert "body" in dropped[LIAR]


def test_an_alarm_needs_images_at_the_server() -> None:
    with pytest.raises(UserError, match="evaluate_on_server = true"):
        make_study(make_method("fedavg"), recipe={"robust": {"alarm": 0.05}})
