"""Rounds of a secure study in which replies are altered, swapped or late."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.secure_rounds import (
    EVERYONE,
    final_weights,
    five_site_study,
    history_of,
    run_study,
)
from support.secure_study import (
    LossyChannel,
    ring_state,
    secure_sites,
)

from fedquilt.core.tree import same_bits
from fedquilt.deploy.protocol.messages import Message, pack, unpack


def _altering(
    change: Callable[[Message], Message], kind: str, site: str = "site-1", round_index: int = 1
) -> type[LossyChannel]:
    """A channel that changes one reply."""

    class Altering(LossyChannel):
        def ask(self, requests, on_reply, limits):  # type: ignore[no-untyped-def]
            def altered(name: str, reply: bytes) -> None:
                message = unpack(reply)
                facts = message.facts
                if (name, facts["kind"], facts["round"]) == (site, kind, round_index):
                    reply = pack(change(message))
                on_reply(name, reply)

            return super().ask(requests, altered, limits)

    return Altering


def test_a_vector_that_no_honest_site_sends_skips_the_round_and_names_nobody(
    tmp_path: Path,
) -> None:
    study = five_site_study()
    far = _altering(lambda m: Message(m.facts, {"masked": m.tree["masked"] + 2**61}), "train")
    run_study(study, far(secure_sites(study, tmp_path / "sites")), tmp_path / "run")
    (_, record) = history_of(tmp_path / "run")
    assert "beyond what these sites agreed on" in record["skipped"]
    assert "site-" not in record["skipped"]
    expected = ring_state(study, [EVERYONE, ()])
    assert same_bits(final_weights(tmp_path / "run"), expected["weights"])


@pytest.mark.parametrize(
    ("kind", "tree", "reason"),
    [
        ("train", {"masked": torch.zeros(3, dtype=torch.int64)}, "integers of 64 bits"),
        ("train", {"masked": torch.zeros(3)}, "integers of 64 bits"),
        ("train", {}, "no masked vector"),
    ],
)
def test_a_reply_of_the_wrong_form_costs_its_site_only(
    kind: str, tree: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    study = five_site_study()
    wrong = _altering(lambda m: Message(m.facts, tree), kind)
    run_study(study, wrong(secure_sites(study, tmp_path / "sites")), tmp_path / "run")
    (_, record) = history_of(tmp_path / "run")
    assert reason in record["missing"]["site-1"]
    left = [name for name in EVERYONE if name != "site-1"]
    assert same_bits(
        final_weights(tmp_path / "run"), ring_state(study, [EVERYONE, left])["weights"]
    )


@pytest.mark.parametrize("kind", ["keys", "shares"])
def test_keys_and_shares_that_were_swapped_cost_their_site_only(kind: str, tmp_path: Path) -> None:
    study = five_site_study()

    def forged(message: Message) -> Message:
        facts = {**message.facts, "sum": {**message.facts["sum"]}}
        given = facts["sum"][kind]
        facts["sum"][kind] = (
            [given[1], given[0], given[2]]
            if kind == "keys"
            else {site: text for site, text in given.items() if site != "site-0"}
        )
        return Message(facts, message.tree)

    channel = _altering(forged, kind)(secure_sites(study, tmp_path / "sites"))
    run_study(study, channel, tmp_path / "run")
    (_, record) = history_of(tmp_path / "run")
    reason = "not signed by it" if kind == "keys" else "exactly the others"
    assert reason in record["missing"]["site-1"]
    left = [name for name in EVERYONE if name != "site-1"]
    assert record["cohort"] == left
    assert same_bits(
        final_weights(tmp_path / "run"), ring_state(study, [EVERYONE, left])["weights"]
    )


def test_a_late_reply_to_an_earlier_attempt_is_refused(tmp_path: Path) -> None:
    study = five_site_study()
    late = _altering(
        lambda m: Message({**m.facts, "sum": {**m.facts["sum"], "attempt": 7}}, m.tree), "keys"
    )
    run_study(study, late(secure_sites(study, tmp_path / "sites")), tmp_path / "run")
    (_, record) = history_of(tmp_path / "run")
    assert "another attempt" in record["missing"]["site-1"]
