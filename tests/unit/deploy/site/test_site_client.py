"""SiteClient: the requests it refuses, its error replies, and its audit log."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.remote_sites import CallingChannel, make_engine, make_sites, make_study
from support.tiny_federation import make_method

from fedquilt.core.tree import same_bits
from fedquilt.core.version import VERSION
from fedquilt.deploy.protocol.messages import Message, pack, unpack
from fedquilt.deploy.site.client import SiteClient
from fedquilt.deploy.study import Study
from fedquilt.models.network import read_weights
from fedquilt.privacy.site_policy import SitePolicy
from fedquilt.training.rounds import run_rounds, start_server


def _request(agreed: Study, **changes: Any) -> bytes:
    facts = {
        "kind": "survey",
        "study": agreed.hash,
        "version": VERSION,
        "site": "site-0",
        "round": 0,
    }
    return pack(Message(facts | changes, {}))


NOT_BACK: dict[str, Any] = {"rollbacks": []}


def _lineage(*digests: str) -> dict[str, Any]:
    return {"lineage": NOT_BACK | {"digests": list(digests)}}


def _site(study: Study, folder: Path, policy: SitePolicy | None = None) -> SiteClient:
    return make_sites(study, folder, policy or SitePolicy(min_cell=0))["site-0"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": "9.9"}, "the server runs fedquilt 9.9, this site"),
        ({"study": "other"}, "not the study"),
        ({"site": "site-1"}, "another site"),
        ({"kind": "shell"}, "unknown request 'shell'"),
        ({"round": 99}, "no round 99"),
        ({"round": True}, "no round True"),
        ({"kind": "end", "round": 4}, "no round 4"),
        ({"kind": ["train"]}, "unknown request \"['train']\""),
        ({"kind": "train", "round": 3}, "no round 3"),
    ],
)
def test_requests_outside_the_study_are_refused(
    changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    study = make_study(make_method("fedavg"))
    reply = unpack(_site(study, tmp_path).answer(_request(study, **changes)))
    assert reply.facts["error"] == "RefusedRequest"
    assert reason in reply.facts["text"]
    assert reply.tree == {}


def test_nothing_leaves_at_the_end(tmp_path: Path) -> None:
    study = make_study(make_method("fedavg"))
    payload = {"weights": read_weights(study.task.build_network())}
    facts = unpack(_request(study, kind="end", round=3, **_lineage("", "", ""))).facts
    reply = unpack(_site(study, tmp_path).answer(pack(Message(facts, payload))))
    facts.pop("lineage")
    assert reply.facts == {**facts, "parts": {}}
    assert reply.tree == {"value": {}}
    lines = (tmp_path / "site-0" / "audit.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["received", "sent"]
    assert json.loads(lines[1])["parts"] == {}


def test_a_method_that_the_policy_does_not_accept_is_refused(tmp_path: Path) -> None:
    study = make_study(make_method("rscfed"))
    policy = SitePolicy(min_cell=0, accepted_methods=("fedavg",))
    reply = unpack(_site(study, tmp_path, policy).answer(_request(study)))
    assert "does not accept the method 'rscfed'" in reply.facts["text"]


def test_invalid_bytes_get_an_error_reply(tmp_path: Path) -> None:
    study = make_study(make_method("fedavg"))
    assert unpack(_site(study, tmp_path).answer(b"junk")).facts["error"] == "BadMessage"


def test_the_text_of_an_error_stays_at_the_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    study = make_study(make_method("fedavg"))

    def fail(*details: object) -> None:
        raise RuntimeError("cannot read patient-0042.png")

    monkeypatch.setattr("fedquilt.deploy.site.client.run_client", fail)
    site = _site(study, tmp_path)
    reply = site.answer(_request(study, kind="train", **_lineage()))
    assert unpack(reply).facts["error"] == "RuntimeError"
    assert b"0042" not in reply
    assert "0042" in caplog.text
    assert "0042" not in (tmp_path / "site-0" / "audit.jsonl").read_text()


def test_a_round_continues_without_a_site_that_fails(tmp_path: Path) -> None:
    method = make_method("fedavg")
    study = make_study(method)
    sites = make_sites(study, tmp_path)
    sites["site-1"]._data = replace(sites["site-1"]._data, images=torch.zeros(0))
    engine = make_engine(study, CallingChannel(sites), tmp_path)
    server = start_server(method, study.task, engine)
    (first, *_) = run_rounds(method, study.task, engine, server)
    assert first.cohort == ("site-0", "site-2")
    assert engine.last_exchange.missing["site-1"].startswith("IndexError")


def test_a_restarted_site_resumes_from_its_disk(tmp_path: Path) -> None:
    """All sites are recreated before every round and read control variates from disk."""
    method = make_method("scaffold")
    study = make_study(method)
    once = CallingChannel(make_sites(study, tmp_path / "once"))
    expected = _trained(study, make_engine(study, once, tmp_path))

    class Restarting(CallingChannel):
        def ask(self, *arguments: Any) -> Any:
            self._sites = make_sites(study, tmp_path / "restarted")
            return super().ask(*arguments)

    assert same_bits(_trained(study, make_engine(study, Restarting({}), tmp_path)), expected)


def _trained(study: Study, engine: Any) -> Any:
    method = study.recipe.method
    server = start_server(method, study.task, engine)
    for round_ in run_rounds(method, study.task, engine, server):
        server = round_.server
    return server
