"""Messages that are made to exhaust or to confuse whoever reads them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from support.remote_sites import CallingChannel, make_engine, make_sites, make_study
from support.tiny_federation import make_method

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Gather
from fedquilt.core.update_checks import RefusedUpdate
from fedquilt.deploy.audit_log import AuditLog
from fedquilt.deploy.protocol.message_bounds import BadMessage
from fedquilt.deploy.protocol.messages import MAGIC, Message, failure, pack, unpack
from fedquilt.deploy.server.declared_images import DeclaredImages
from fedquilt.deploy.server.replies import Replies
from fedquilt.deploy.server.reply_checks import check_records, largest_reply
from fedquilt.deploy.study_rules import Rules

EMPTY_TABLE = (2).to_bytes(8, "little") + b"{}"


def message(header: bytes, tensors: bytes = EMPTY_TABLE) -> bytes:
    return MAGIC + len(header).to_bytes(8, "big") + header + tensors


def header(facts: str, empty: str = "[]") -> bytes:
    return f'{{"facts": {facts}, "empty": {empty}}}'.encode()


def table(*names: str) -> bytes:
    """Safetensors with one float under each name."""
    facts = {
        name: {"dtype": "F32", "shape": [1], "data_offsets": [4 * place, 4 * place + 4]}
        for place, name in enumerate(names)
    }
    text = json.dumps(facts).encode()
    return len(text).to_bytes(8, "little") + text + bytes(4 * len(names))


HOSTILE = {
    "deep JSON": (message(header("[" * 200_000 + "]" * 200_000)), "more than 12 levels deep"),
    "brackets in text": (message(header('{"a": "' + "[" * 500)), "not JSON"),
    "NaN": (message(header('{"round": NaN}')), "NaN is not a number"),
    "1e999": (message(header('{"round": 1e999}')), "too large"),
    "facts are a list": (message(header("[]")), "no facts"),
    "no empty branches": (message(b'{"facts": {}}'), "no list of empty"),
    "empty is text": (message(header("{}", '"abc"')), "no list of empty"),
    "empty branch deep": (message(header("{}", f'["{"a/" * 3000}a"]')), "text of at most 1000"),
    "names deep": (message(header("{}"), table("a/" * 100 + "a")), "more than 16 levels deep"),
    "names long": (message(header("{}"), table("a" * 2000)), "at most 1000 characters"),
    "below a tensor": (message(header("{}"), table("a", "a/b")), "below another tensor"),
    "above a tensor": (message(header("{}"), table("a/b", "a")), "below another tensor"),
    "bare and named": (message(header("{}"), table("", "a")), "below another tensor"),
    "empty name": (message(header("{}"), table("a//b")), "an empty part"),
    "empty branch in a tensor": (message(header("{}", '["a/b"]'), table("a")), "not make a tree"),
    "table deep": (message(header("{}"), (9).to_bytes(8, "little") + b'{"a":[[[['), "too deeply"),
    "table a list": (message(header("{}"), (2).to_bytes(8, "little") + b"[]"), "not a table"),
    "table cut": (message(header("{}"), (99).to_bytes(8, "little") + b"{}"), "cut short"),
    "table claims 4 TB": (message(header("{}"), (2**42).to_bytes(8, "little")), "too large"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_message_is_refused_quickly(name: str) -> None:
    content, reason = HOSTILE[name]
    began = time.perf_counter()
    with pytest.raises(BadMessage, match=reason):
        unpack(content)
    assert time.perf_counter() - began < 1.0


def test_a_failure_repeats_nothing_odd_of_the_request() -> None:
    facts = {"kind": ["train"], "round": 10**40, "study": "s" * 5000, "other": 1}
    reply = unpack(failure(pack(Message(facts, {})), "site-0", "Died", "it ended")).facts
    assert reply["kind"] == "['train']"
    assert len(str(reply["round"])) < 60
    assert len(reply["study"]) < 120
    assert "other" not in reply
    assert unpack(failure(b"junk", "site-0", "Died", "it ended")).facts["site"] == "site-0"


def replies_of(folder: Path, **changes: Any) -> Replies:
    study = make_study(make_method("fedavg"))
    log = AuditLog(folder / "audit.jsonl")
    expected = {"codes": Gather(torch.zeros(0, 2), any_length=True)}
    return Replies(study, "train", 0, log, expected, DeclaredImages(study), **changes)


def test_kinds_of_any_type_are_refused_and_audited(tmp_path: Path) -> None:
    method = make_method("fedavg")
    study = make_study(method)
    odd: list[Any] = [[], {}, 3, None, True, ["Mean"], {"kind": "Mean"}]

    def alter(site: str, reply: bytes) -> list[bytes]:
        found = unpack(reply)
        parts = {
            name: {"kind": kind} for name, kind in zip([*found.facts["parts"], *"abcdefg"], odd)
        }
        return [pack(Message({**found.facts, "parts": parts}, found.tree))]

    engine = make_engine(study, CallingChannel(make_sites(study, tmp_path), alter), tmp_path)
    with pytest.raises(UserError, match="0 of 3 sites answered"):
        engine.survey(method)
    lines = (tmp_path / "server.jsonl").read_text().splitlines()
    refused = [json.loads(line) for line in lines if '"refused"' in line]
    assert {each["site"] for each in refused} == set(study.site_names)
    assert all("has no valid kind" in each["reason"] for each in refused)


def test_a_check_that_fails_otherwise_refuses_that_reply_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies = replies_of(tmp_path)

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("fedquilt.deploy.server.replies.unpack", fail)
    replies.receive("site-0", b"anything")
    assert replies.reasons == {"site-0": "refused: ZeroDivisionError in its checks"}
    assert '"event": "refused"' in (tmp_path / "audit.jsonl").read_text()
    assert replies.fault is None


def test_a_full_disk_fails_the_exchange_and_not_the_callback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be written into the audit log does not count, and nothing leaves a site."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    method = make_method("fedavg")
    study = make_study(method)
    sites = make_sites(study, tmp_path)
    replies = replies_of(tmp_path)
    monkeypatch.setattr(AuditLog, "record", full)
    replies.receive("site-0", b"junk")
    assert isinstance(replies.fault, OSError)
    reply = unpack(sites["site-0"].answer(pack(Message({"kind": "survey"}, {}))))
    assert (reply.facts["error"], reply.facts["text"]) == ("OSError", "see the site's log")
    assert reply.tree == {}


def test_replies_are_limited_by_what_the_method_sends() -> None:
    expected = {"codes": Gather(torch.zeros(0, 2, dtype=torch.float32), any_length=True)}
    assert largest_reply(expected, Rules(max_records=1000)) == 8000 + 2**20
    assert largest_reply(expected, Rules(max_message_bytes=5)) == 5
    many = {"codes": Gather(torch.zeros(11, 2), any_length=True)}
    check_records(many, "site-0", Rules(), 11)
    for limits in ((Rules(), 10), (Rules(max_records=10), None)):
        with pytest.raises(RefusedUpdate, match="11 records, at most 10 were agreed"):
            check_records(many, "site-0", *limits)
