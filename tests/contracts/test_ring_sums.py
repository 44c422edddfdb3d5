"""Ring sums: every engine and every order of arrival ends with the same bits, for every method."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.engine_agreement import with_sgd
from support.remote_sites import CallingChannel, make_clients, make_engine, make_sites, make_study
from support.tiny_federation import METHOD_NAMES, Federation, make_method

from fedquilt.core.aggregation_rules import AggregationRules
from fedquilt.core.errors import UserError
from fedquilt.core.tree import leaves, same_bits
from fedquilt.deploy.protocol.channel import WaitLimits
from fedquilt.engines.cuda_graph.engine import CudaGraphEngine
from fedquilt.engines.sequential import SequentialEngine
from fedquilt.engines.threaded import ThreadedEngine
from fedquilt.training.method import Method, State
from fedquilt.training.rounds import Engine, run_rounds, start_server

GATHERED = ("fedalc", "fedaws", "rscfed", "scene-gcn")  # the server needs each client's own value
POOLED = ("centralised", "full-labels")
SUMMED = [name for name in METHOD_NAMES if name not in (*GATHERED, *POOLED)]
every_method = pytest.mark.parametrize("name", SUMMED)
RING = AggregationRules(summation="ring")
IMAGES = 21  # of every client


class ShuffledChannel(CallingChannel):
    """Replies arrive in another order in every round."""

    def ask(
        self,
        requests: Mapping[str, bytes],
        on_reply: Callable[[str, bytes], None],
        limits: WaitLimits,
    ) -> Mapping[str, str]:
        replies: list[tuple[str, bytes]] = []
        silent = super().ask(requests, lambda site, reply: replies.append((site, reply)), limits)
        random.Random(len(replies[0][1])).shuffle(replies)
        for site, reply in reversed(replies):
            on_reply(site, reply)
        return silent


def _trained(method: Method, federation: Federation, engine: Engine) -> State:
    server = start_server(method, federation.task, engine)
    for round_ in run_rounds(method, federation.task, engine, server):
        assert not round_.bounds.refused
        server = round_.server
    return server


def _sequential(federation: Federation) -> SequentialEngine:
    return SequentialEngine(federation.task, federation.clients, rules=RING)


@every_method
def test_every_engine_ends_with_the_same_bits(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = make_method(name)
    federation = make_clients(method)
    expected = _trained(method, federation, _sequential(federation))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    threaded = ThreadedEngine(federation.task, federation.clients, rules=RING)
    assert same_bits(_trained(method, federation, threaded), expected)
    study = make_study(method, images=IMAGES, recipe={"summation": "ring"})
    engine = make_engine(study, ShuffledChannel(make_sites(study, tmp_path)), tmp_path)
    assert same_bits(_trained(method, federation, engine), expected)


@every_method
def test_the_cuda_graph_engine_on_a_cpu_too(name: str) -> None:
    method = with_sgd(make_method(name))
    federation = make_clients(method, rounds=1)
    modules = federation.task.build_network().modules()
    draws = any(isinstance(each, torch.nn.Dropout) and each.p > 0 for each in modules)
    engine = CudaGraphEngine(
        federation.task,
        federation.clients,
        device="cpu",
        slots=1 if draws else 2,
        channels_last=False,
        rules=RING,
    )
    expected = _trained(method, federation, _sequential(federation))
    assert same_bits(_trained(method, federation, engine), expected)


@pytest.mark.parametrize("name", ["fedavg-pl", "scaffold", "fedmlp", "spherefed"])
def test_sums_of_integers_are_close_to_those_of_floats(name: str) -> None:
    method = make_method(name)
    federation = make_clients(method)
    integers = _trained(method, federation, _sequential(federation))
    plain = _trained(method, federation, federation.engine())
    for (path, one), (_, other) in zip(leaves(plain), leaves(integers)):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5, msg=path)


@pytest.mark.parametrize("name", GATHERED)
def test_what_the_server_must_see_one_by_one_is_refused(name: str) -> None:
    method = make_method(name)
    federation = make_clients(method)
    with pytest.raises(UserError, match="Gather"):
        _trained(method, federation, _sequential(federation))
    with pytest.raises(UserError, match="Gather"):
        make_study(method, images=IMAGES, recipe={"summation": "ring"})


def test_the_settings_of_a_method_decide_not_its_name() -> None:
    make_study(make_method("fednoro"), images=IMAGES, recipe={"summation": "ring"})
    distance_aware = make_method("fednoro", distance_aware=True)
    with pytest.raises(UserError, match="Gather"):
        make_study(distance_aware, images=IMAGES, recipe={"summation": "ring"})


def test_a_study_with_ring_sums_needs_agreed_numbers_of_images() -> None:
    with pytest.raises(UserError, match=r"`images` in \[\[sites\]\] of site-0, site-1, site-2"):
        make_study(make_method("fedavg"), recipe={"summation": "ring"})


def test_a_cohort_without_any_weight_changes_nothing() -> None:
    """FLAG weights clients by their positives, of which nobody has any here."""
    method = make_method("flag")
    federation = make_clients(method)
    clients = {
        name: replace(data, labels=torch.zeros_like(data.labels))
        for name, data in federation.clients.items()
    }
    federation = replace(federation, clients=clients)
    engine = _sequential(federation)
    server = start_server(method, federation.task, engine)
    for round_ in run_rounds(method, federation.task, engine, server):
        assert same_bits(round_.server["weights"], server["weights"])
