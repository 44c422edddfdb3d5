"""Under every method a site may join late and takes part from then on."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.remote_sites import CallingChannel, make_clients, make_engine, make_sites, make_study
from support.tiny_federation import METHOD_NAMES, Federation, make_method

from fedquilt.core.tree import flatten, same_bits
from fedquilt.engines.client_states import StatesInMemory
from fedquilt.training.method import Method, State
from fedquilt.training.rounds import run_rounds, start_server

BOUNDS = ("centralised", "full-labels")  # for simulations only
LATE = "site-2"


@pytest.mark.parametrize("name", [name for name in METHOD_NAMES if name not in BOUNDS])
def test_a_late_site_counts_like_a_client_not_drawn_before(name: str, tmp_path: Path) -> None:
    """It misses the survey and the first round; the two others annotate every class."""
    method = make_method(name)
    study = make_study(method, quorum=2)
    sites = make_sites(study, tmp_path)
    on_time = {site: client for site, client in sites.items() if site != LATE}
    engine = make_engine(study, CallingChannel(on_time), tmp_path)
    server = start_server(method, study.task, engine)
    first = next(iter(run_rounds(method, study.task, engine, server)))
    assert LATE not in first.cohort

    engine = make_engine(study, CallingChannel(sites), tmp_path)
    for round_ in run_rounds(method, study.task, engine, first.server, first_round=1):
        assert LATE in round_.cohort
        assert engine.last_exchange.missing == {}
    assert all(bool(leaf.isfinite().all()) for leaf in flatten(round_.server).values())
    assert same_bits(round_.server, _in_one_process(method))


def _in_one_process(method: Method) -> State:
    """Return the server of a simulation whose third client is drawn from round 2 on."""
    federation = make_clients(method)
    task, engine = federation.task, federation.engine(StatesInMemory())
    two = {client: data for client, data in federation.clients.items() if client != LATE}
    server = start_server(method, task, Federation(task, two).engine())
    server = method.update(server, engine.exchange(method, method.broadcast(server), 0, list(two)))
    for round_ in run_rounds(method, task, engine, server, first_round=1):
        server = round_.server
    return server
