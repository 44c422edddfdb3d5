"""A curious server asks for more than one sum: each site refuses, and its audit log says why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.remote_sites import make_engine
from support.secure_rounds import events_of
from support.secure_study import Interrupted, LossyChannel, secure_sites, secure_study
from support.tiny_federation import make_method

from fedquilt.deploy.protocol.messages import Message, pack, unpack
from fedquilt.deploy.site.client import SiteClient
from fedquilt.training.rounds import run_rounds, start_server

# Four requests each for the survey and the first round; then the first site has unmasked it.
FIRST_UNMASKED = 7 * 4
TWO, THREE = ["site-0", "site-1"], ["site-0", "site-1", "site-3"]  # of four


class CuriousServer:
    """A study whose server was stopped when the first of four sites had unmasked a round."""

    def __init__(self, folder: Path) -> None:
        study = secure_study(make_method("fedavg-pl"))
        self.folder = folder
        self.sites: dict[str, SiteClient] = secure_sites(study, folder)
        channel = LossyChannel(self.sites, kill_at=FIRST_UNMASKED)
        engine, method = make_engine(study, channel, folder), study.recipe.method
        with pytest.raises(Interrupted):
            [*run_rounds(method, study.task, engine, start_server(method, study.task, engine))]
        self.sent = {(site, kind): request for site, kind, request in channel.requests}
        self.sent |= {("site-1", "unmask"): self.sent["site-0", "unmask"]}

    def ask(self, site: str, kind: str, **changes: Any) -> dict[str, Any]:
        """Send a request of the round again, with other facts of the sum; return the reply's."""
        message = unpack(self.sent[site, kind])
        facts = {**message.facts, "site": site, "sum": {**message.facts["sum"], **changes}}
        return unpack(self.sites[site].answer(pack(Message(facts, message.tree)))).facts

    def refusals(self, site: str) -> list[str]:
        return [line["reason"] for line in events_of(self.log(site), "refused")]

    def log(self, site: str) -> Path:
        return self.folder / site / "audit.jsonl"


@pytest.fixture
def server(tmp_path: Path) -> CuriousServer:
    return CuriousServer(tmp_path)


CASES: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "other survivors": (
        *("site-0", "unmask", {"survivors": THREE}),
        "already unmasked for other survivors",
    ),
    "an attempt again": ("site-0", "keys", {}, "was already used"),
    "fewer sites": ("site-0", "keys", {"attempt": 1, "cohort": THREE}, "by the recipe it is"),
    "two survivors": ("site-1", "unmask", {"survivors": TWO}, "only 2 sites survived, at least 3"),
    "two annotators": ("site-1", "unmask", {"survivors": THREE}, "fewer than 3 annotators of"),
    "a vector again": ("site-1", "train", {}, "already masked"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_request_for_more_than_one_sum_is_refused_and_logged(
    case: str, server: CuriousServer
) -> None:
    site, kind, changes, reason = CASES[case]
    sent = len(events_of(server.log(site), "sent"))
    reply = server.ask(site, kind, **changes)
    assert reply["error"] == "RefusedSum"
    assert "sum" not in reply
    (logged,) = server.refusals(site)
    assert reason in logged
    assert len(events_of(server.log(site), "sent")) == sent


def test_a_swapped_key_is_refused_and_logged(server: CuriousServer) -> None:
    begun = {site: server.ask(site, "keys", attempt=1)["sum"]["keys"] for site in server.sites}
    swapped = {**begun, "site-2": begun["site-3"]}
    assert server.ask("site-1", "shares", attempt=1, keys=swapped)["error"] == "RefusedSum"
    (logged,) = server.refusals("site-1")
    assert "'site-2' are not signed by it" in logged
    assert "shares" in server.ask("site-1", "shares", attempt=1, keys=begun)["sum"]
