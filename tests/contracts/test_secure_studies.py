"""Secure sums: a study ends with the bits of ring sums in one process, for every method."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.remote_sites import make_engine
from support.secure_study import LossyChannel, ring_state, secure_sites, secure_study
from support.tiny_federation import METHOD_NAMES, make_method

from fedquilt.core.errors import UserError
from fedquilt.core.tree import same_bits
from fedquilt.training.rounds import run_rounds, start_server

GATHERED = ("fedalc", "fedaws", "rscfed", "scene-gcn")  # the server needs each client's own value
POOLED = ("centralised", "full-labels")
SUMMED = [name for name in METHOD_NAMES if name not in (*GATHERED, *POOLED)]
# Between them they send every form of part; the others follow in the slow tests.
FAST = (
    *("fedavg-pl", "scaffold", "fedcurv", "fedmlp", "fedlsm", "spherefed", "fedirm", "flag"),
    *("site-aware", "local-only"),
)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in FAST else (pytest.mark.slow,)) for name in SUMMED],
)
def test_a_secure_study_ends_with_the_bits_of_ring_sums(name: str, tmp_path: Path) -> None:
    study = secure_study(make_method(name))
    channel = LossyChannel(secure_sites(study, tmp_path))
    engine = make_engine(study, channel, tmp_path)
    server = start_server(study.recipe.method, study.task, engine)
    for round_ in run_rounds(study.recipe.method, study.task, engine, server):
        assert round_.skipped is None
        server = round_.server
    assert same_bits(server, ring_state(study))


@pytest.mark.parametrize("name", GATHERED)
def test_what_the_server_must_see_one_by_one_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"summation = 'secure' .*\(Gather\)"):
        secure_study(make_method(name))


def test_the_settings_of_a_method_decide_not_its_name() -> None:
    secure_study(make_method("fednoro"))
    with pytest.raises(UserError, match="Gather"):
        secure_study(make_method("fednoro", distance_aware=True))
