"""What a site writes into its reply reaches logs, the history and the status escaped."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from support.remote_sites import make_study
from support.tiny_federation import make_method

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Sum
from fedquilt.core.version import VERSION
from fedquilt.deploy.audit_log import AuditLog
from fedquilt.deploy.protocol.messages import Message, pack, update_message
from fedquilt.deploy.server.declared_images import DeclaredImages
from fedquilt.deploy.server.replies import Replies
from fedquilt.deploy.study import study_from

FAKE = "\x1b[1A\x1b[2K\nall 12 rounds are done"
SAFE = r"\u001b[1A\u001b[2K\nall 12 rounds are done"


def _receive(tmp_path: Path, reply: bytes) -> Replies:
    study = make_study(make_method("fedavg"))
    expected = {"body": Sum(torch.zeros(1))}
    log, images = AuditLog(tmp_path / "audit.jsonl"), DeclaredImages(study)
    replies = Replies(study, "train", 0, log, expected, images)
    replies.receive("site-0", reply)
    return replies


def _facts(**further: object) -> dict[str, object]:
    study = make_study(make_method("fedavg"))
    facts = {"kind": "train", "study": study.hash, "version": VERSION, "site": "site-0"}
    return {**facts, "round": 0, "images": 21, **further}


def test_a_sites_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        replies = _receive(tmp_path, pack(Message(_facts(error="Error", text=FAKE), {})))
    assert replies.reasons == {"site-0": f"Error: {SAFE}"}
    assert SAFE in caplog.text
    assert "\x1b" not in caplog.text


def test_a_parts_name(tmp_path: Path) -> None:
    message = update_message(_facts(), {FAKE: Sum(torch.zeros(1))})
    reason = _receive(tmp_path, pack(message)).reasons["site-0"]
    assert reason.startswith("refused: ")
    assert "\x1b" not in reason
    assert "\n" not in reason


def test_class_names_with_control_characters_are_refused() -> None:
    settings = make_study(make_method("fedavg")).to_dict()
    settings["classes"][0] = settings["sites"][0]["annotates"][0] = "Edema\x1b[2K"
    with pytest.raises(UserError, match=r"the class name Edema\\u001b\[2K has control"):
        study_from(settings)
