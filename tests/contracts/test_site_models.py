"""Under every method a site's model equals that client's model in a simulation."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.remote_sites import CallingChannel, make_clients, make_engine, make_sites, make_study
from support.tiny_federation import METHOD_NAMES, make_method

from fedquilt.core.tree import Weights, same_bits
from fedquilt.deploy.site.model import KeptModel, SiteModel
from fedquilt.engines.client_states import StatesInMemory
from fedquilt.training.method import Method, State
from fedquilt.training.rounds import run_rounds, start_server

BOUNDS = ("centralised", "full-labels")  # for simulations only
OWN = {"site-aware", "scene-gcn", "local-only", "flexible-fl"}
PART = {"fedaws", "fedalc"}  # a site receives the rows of its own classes only
METHODS = [name for name in METHOD_NAMES if name not in BOUNDS]
SITES = ("site-0", "site-1", "site-2")
ROUNDS = 3  # of the tiny federation


@pytest.mark.parametrize("name", METHODS)
def test_after_the_end_every_site_has_the_simulations_model(name: str, tmp_path: Path) -> None:
    method = make_method(name)
    server = _remote_study(method, tmp_path, cohort_size=2)
    found = _kept(tmp_path)
    assert {model.rounds for model in found.values()} == {ROUNDS}
    kind = "own" if name in OWN else "part" if name in PART else "global"
    assert {model.kind for model in found.values()} == {kind}
    shared = method.global_weights(server)
    assert (shared is None) == (kind == "own")
    expected = dict.fromkeys(SITES, shared)
    if kind != "global":
        expected = _in_one_process(method, cohort_size=2)
    for site, model in found.items():
        assert same_bits(model.weights, expected[site]), site


@pytest.mark.parametrize("name", sorted(OWN))
def test_a_site_that_never_trained_has_no_model_of_its_own(name: str, tmp_path: Path) -> None:
    method = make_method(name)
    study = make_study(method, quorum=2)
    sites = make_sites(study, tmp_path)
    without = {site: client for site, client in sites.items() if site != "site-2"}
    engine = make_engine(study, CallingChannel(without), tmp_path)
    server = start_server(method, study.task, engine)
    for round_ in run_rounds(method, study.task, engine, server):
        server = round_.server
    assert engine.send_final(method.broadcast(server), ROUNDS) == {"site-2": "not connected"}
    late = make_engine(study, CallingChannel(sites), tmp_path)
    assert late.send_final(method.broadcast(server), ROUNDS) == {}
    assert set(_kept(tmp_path)) == {"site-0", "site-1"}


def _remote_study(method: Method, folder: Path, cohort_size: int) -> State:
    study = make_study(method)
    engine = make_engine(study, CallingChannel(make_sites(study, folder)), folder)
    server = start_server(method, study.task, engine)
    for round_ in run_rounds(method, study.task, engine, server, cohort_size=cohort_size):
        server = round_.server
    assert engine.send_final(method.broadcast(server), ROUNDS) == {}
    return server


def _kept(folder: Path) -> dict[str, KeptModel]:
    found = {site: SiteModel(folder / site / "states").read() for site in SITES}
    return {site: model for site, model in found.items() if model is not None}


def _in_one_process(method: Method, cohort_size: int) -> dict[str, Weights]:
    federation = make_clients(method)
    engine = federation.engine(StatesInMemory())
    server = start_server(method, federation.task, engine)
    for round_ in run_rounds(method, federation.task, engine, server, cohort_size=cohort_size):
        server = round_.server
    return dict(engine.personal_weights(method, method.broadcast(server)))
