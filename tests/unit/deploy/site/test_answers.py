"""A site answers a round once, for a network that descends from those it has seen."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from support.remote_sites import make_sites, make_study
from support.tiny_federation import make_method

from fedquilt.core.errors import UserError
from fedquilt.core.tree import same_bits
from fedquilt.core.version import VERSION
from fedquilt.deploy.protocol.lineage import Lineage, Rollback, tree_digest
from fedquilt.deploy.protocol.messages import Message, pack, unpack, update_of
from fedquilt.deploy.server.broadcast_log import REPEATED, BroadcastLog
from fedquilt.deploy.site.answers import ANSWERS_FILE, Answers, RefusedRequest
from fedquilt.models.network import read_weights
from fedquilt.privacy.site_policy import SitePolicy

ONE, TWO, THREE = ("1" * 64, "2" * 64, "3" * 64)


def _told(answers: Answers, digests: tuple[str, ...], new: str, *back: Rollback) -> None:
    lineage = Lineage(digests, back)
    answers.record(lineage, len(digests), new, 1.0, kind="train")


def test_a_repeat_is_answered_for_the_same_network_only(tmp_path: Path) -> None:
    _told(Answers(tmp_path, 3), (), ONE)
    again = Answers(tmp_path, 3)  # after a restart
    _told(again, (), ONE)
    assert again.so_far.count == 1
    with pytest.raises(RefusedRequest, match="has received another network in round 1"):
        _told(again, (), TWO)
    assert Answers(tmp_path, 3).so_far.history == (ONE,)


def test_a_network_must_descend_from_the_one_before(tmp_path: Path) -> None:
    answers = Answers(tmp_path, 9)
    _told(answers, (), ONE)
    with pytest.raises(RefusedRequest, match=r"does not descend from the one .* in round 1"):
        _told(answers, (TWO,), THREE)
    _told(answers, (ONE, TWO), THREE)  # it missed round 2, and remembers what it was told
    with pytest.raises(RefusedRequest, match="in round 2"):
        _told(answers, (ONE, ONE, THREE), THREE)
    with pytest.raises(RefusedRequest, match="one broadcast for each round"):
        answers.record(Lineage((ONE,)), 3, TWO, 1.0, kind="train")


def test_a_study_that_goes_back_says_so_and_uses_up_answers(tmp_path: Path) -> None:
    answers = Answers(tmp_path, rounds=2, budget=3)
    back = Rollback(1, "a site sent wrong labels")
    _told(answers, (), ONE)
    _told(answers, (ONE,), TWO)
    assert answers.admit(Lineage((ONE,), (back,)), 1, THREE) == (back,)
    _told(answers, (ONE,), THREE, back)
    assert answers.so_far.count == 3
    with pytest.raises(RefusedRequest, match="contradicts the earlier broadcasts"):
        _told(answers, (ONE,), THREE)
    with pytest.raises(RefusedRequest, match=r"has answered 3 rounds .*max_answers"):
        _told(answers, (ONE,), ONE, back, Rollback(1, "again"))
    with pytest.raises(RefusedRequest, match="contradicts"):
        _told(answers, (ONE,), THREE, Rollback(0, "another"))


def test_a_damaged_record_stops_the_site(tmp_path: Path) -> None:
    _told(Answers(tmp_path, 3), (), ONE)
    path = tmp_path / ANSWERS_FILE
    path.write_text(path.read_text().replace("1", "2", 1))
    with pytest.raises(UserError, match="it was altered"):
        Answers(tmp_path, 3)


def test_the_server_tells_sites_when_it_repeats_a_round_otherwise(tmp_path: Path) -> None:
    log = BroadcastLog(tmp_path / "broadcasts.json")
    log.record(0, {"*": ONE})
    log.record(1, {"*": TWO})
    log.record(1, {"*": TWO})  # repeated with the same bits
    assert BroadcastLog(tmp_path / "broadcasts.json").lineage("a", 2) == Lineage((ONE, TWO))
    log.record(1, {"*": THREE})
    assert log.lineage("a", 2) == Lineage((ONE, THREE), (Rollback(1, REPEATED),))
    own = BroadcastLog()
    own.record(0, {"a": ONE, "b": TWO})
    assert own.lineage("a", 1) == Lineage((ONE,))
    assert own.lineage("newcomer", 1) == Lineage(("",))


@pytest.fixture
def asked(tmp_path: Path) -> Any:
    """A site, and what asks it to train a network in a round."""
    study = make_study(make_method("fedavg"))
    site = make_sites(study, tmp_path, SitePolicy(min_cell=0, max_answers=2))["site-0"]

    def ask(weights: Any, round_index: int = 0, *before: str) -> Any:
        facts = {"kind": "train", "study": study.hash, "version": VERSION, "site": "*"}
        lineage = {"lineage": {"digests": list(before), "rollbacks": []}}
        request = Message(facts | lineage | {"round": round_index}, {"weights": weights})
        return unpack(site.answer(pack(request)))

    return read_weights(study.task.build_network()), ask


def test_one_round_is_not_answered_for_two_networks(asked: Any) -> None:
    weights, ask = asked
    first = ask(weights)
    assert same_bits(update_of(ask(weights))["body"].value, update_of(first)["body"].value)
    probing = {name: leaf * 1.5 for name, leaf in weights.items()}
    refused = ask(probing)
    assert refused.facts["error"] == "RefusedRequest"
    assert "has received another network in round 1" in refused.facts["text"]
    assert refused.tree == {}


def test_networks_beyond_the_agreed_norms_and_form_are_refused(asked: Any) -> None:
    weights, ask = asked
    amplified = {name: leaf * 1e4 for name, leaf in weights.items()}
    assert "more than 100 times that of a new network" in ask(amplified).facts["text"]
    name = next(iter(weights))
    assert "not those of the study's" in ask({**weights, "extra": torch.ones(2)}).facts["text"]
    assert "not finite" in ask({**weights, name: weights[name] * float("nan")}).facts["text"]
    assert "error" not in ask(weights).facts
    grown = {name: leaf * 101 for name, leaf in weights.items()}
    digest = tree_digest({"weights": weights})
    assert "100 times that of the round before" in ask(grown, 1, digest).facts["text"]


def test_a_site_stops_answering_when_its_budget_is_spent(asked: Any) -> None:
    weights, ask = asked
    digest = tree_digest({"weights": weights})
    assert "error" not in ask(weights).facts
    assert "error" not in ask(weights, 1, digest).facts
    assert "has answered 2 rounds of this study" in ask(weights, 2, digest, digest).facts["text"]


def test_a_request_larger_than_the_network_needs_is_not_read(asked: Any) -> None:
    _, ask = asked
    reply = ask({"weights": torch.zeros(2**23)})
    assert "bytes; for the study's network" in reply.facts["text"]


def test_validations_have_a_budget_of_their_own(tmp_path: Path) -> None:
    answers = Answers(tmp_path, 3, budget=1)
    answers.record(Lineage((ONE,)), 1, TWO, 1.0, kind="validate")
    answers.record(Lineage((ONE,)), 1, TWO, 1.0, kind="train")
    again = Answers(tmp_path, 3, budget=1)
    assert (again.so_far.judged, again.so_far.rounds) == ((1,), (1,))
    again.record(Lineage((ONE,)), 1, TWO, 1.0, kind="validate")  # the same network again
    with pytest.raises(RefusedRequest, match="has validated 1 round of this study"):
        again.record(Lineage((ONE, TWO)), 2, THREE, 1.0, kind="validate")
    back = Lineage((ONE,), (Rollback(1, "lost"),))
    with pytest.raises(RefusedRequest, match="max_answers"):  # another network, the same round
        again.record(back, 1, THREE, 1.0, kind="validate")


def test_answers_of_an_earlier_version_are_read(tmp_path: Path) -> None:
    _told(Answers(tmp_path, 3), (), ONE)
    path = tmp_path / "answers.json"
    content = json.loads(path.read_text())
    for name in ("digest", "judged", "judged_count"):
        del content[name]
    content["left"] = None
    text = json.dumps(content, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps(content | {"digest": digest}))
    assert Answers(tmp_path, 3).so_far.rounds == (0,)
