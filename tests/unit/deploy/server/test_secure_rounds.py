"""Rounds of a secure study: who may be lost, what is skipped, and a server killed at any moment."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.secure_study import (
    FIVE,
    FOUR,
    Interrupted,
    LossyChannel,
    ring_state,
    secure_sites,
    secure_study,
)
from support.tiny_federation import make_method

from fedquilt.core.errors import UserError
from fedquilt.core.tree import Weights, same_bits
from fedquilt.data.client_data import ClientData
from fedquilt.deploy.protocol.messages import Message, pack, unpack
from fedquilt.deploy.server.quorum import TooFewSites
from fedquilt.deploy.server.run import ServerRun
from fedquilt.deploy.server.status import round_line
from fedquilt.deploy.server.sum_journal import SumJournal
from fedquilt.deploy.study import Study
from fedquilt.runs.finished_run import read_run
from fedquilt.runs.trained_models import load_weights

STEPS = ("keys", "shares", "train", "unmask")
EVERYONE = tuple(f"site-{number}" for number in range(5))


def _study(**settings: Any) -> Study:
    return secure_study(make_method("fedavg-pl"), annotated=FIVE, **settings)


def _run(study: Study, channel: LossyChannel, folder: Path, *, resume: bool = False) -> ServerRun:
    run = ServerRun(study, folder, channel)
    run.run(resume=resume)
    return run


def _weights(folder: Path) -> Weights:
    run = read_run(folder)
    return load_weights(run.folder, run.models.card, "global")


def _history(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]


def _events(path: Path, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if line["event"] == event]


@pytest.mark.parametrize("step", STEPS)
def test_a_site_lost_at_any_step_leaves_the_sum_of_the_others(step: str, tmp_path: Path) -> None:
    study = _study()

    def is_lost(site: str, kind: str, round_index: int) -> bool:
        # The survey is round 0, too: there all sites are heard.
        return (site, kind, round_index) == ("site-3", step, 1)

    channel = LossyChannel(secure_sites(study, tmp_path / "sites"), is_lost)
    _run(study, channel, tmp_path / "run")
    first, second = _history(tmp_path / "run")
    left = [name for name in EVERYONE if name != "site-3" or step == "unmask"]
    assert (first["cohort"], second["cohort"]) == ([*EVERYONE], left)
    assert second["missing"] == ({} if step == "unmask" else {"site-3": "lost connection"})
    assert second["attempt"] == 0
    expected = ring_state(study, [EVERYONE, left])
    assert same_bits(_weights(tmp_path / "run"), expected["weights"])


def test_the_history_counts_the_bytes_of_all_four_steps(tmp_path: Path) -> None:
    study = _study(rounds=1)
    channel = LossyChannel(secure_sites(study, tmp_path / "sites"))
    _run(study, channel, tmp_path / "run")
    (record,) = _history(tmp_path / "run")
    kinds = [kind for _, kind, _ in channel.replies]
    assert kinds == [
        kind
        for step in (("keys", "shares", "survey", "unmask"), STEPS, ("end",))
        for kind in (each for each in step for _ in EVERYONE)
    ]
    of_round = range(20, 40)
    assert record["bytes_up"] == sum(len(channel.replies[at][2]) for at in of_round)
    assert record["bytes_down"] == sum(len(channel.requests[at][2]) for at in of_round)


def test_too_few_sites_end_the_job_before_anything_is_unmasked(tmp_path: Path) -> None:
    study, away = _study(), ("site-0", "site-4")
    sites = secure_sites(study, tmp_path / "sites")
    channel = LossyChannel(sites, lambda site, kind, index: kind == "train" and site in away)
    with pytest.raises(TooFewSites, match=r"round 1: train 0: 3 of 5 sites sent a masked vector"):
        _run(study, channel, tmp_path / "run")
    assert SumJournal(tmp_path / "run").entry("train 0").survivors == ()
    # They are back: new masks, and those who had trained do not train again.
    trained = {name: _trained(tmp_path, name) for name in EVERYONE}
    assert trained == {name: int(name not in away) for name in EVERYONE}
    _run(study, LossyChannel(sites), tmp_path / "run", resume=True)
    assert [record["attempt"] for record in _history(tmp_path / "run")] == [2, 0]
    assert same_bits(_weights(tmp_path / "run"), ring_state(study)["weights"])


def _trained(folder: Path, site: str) -> int:
    """How many rounds' states the site has kept."""
    return len(list((folder / "sites" / site / "states").glob("after-*.json")))


def test_a_class_left_with_two_annotators_is_not_summed(tmp_path: Path) -> None:
    """Four sites, three annotators of each class: without site-0 two classes have two left."""
    study = secure_study(make_method("fedavg-pl"), annotated=FOUR)
    sites = secure_sites(study, tmp_path / "sites")
    channel = LossyChannel(sites, lambda site, kind, index: (site, kind) == ("site-0", "train"))
    with pytest.raises(TooFewSites, match="fewer than 3 annotators of round, square are left"):
        _run(study, channel, tmp_path / "run")


def test_a_study_that_reveals_goes_on_without_them(tmp_path: Path) -> None:
    study = secure_study(
        make_method("fedavg-pl"), annotated=FOUR, further={"few_annotators": "reveal"}
    )
    sites = secure_sites(study, tmp_path / "sites")
    channel = LossyChannel(sites, lambda site, kind, index: (site, kind) == ("site-0", "train"))
    _run(study, channel, tmp_path / "run")
    left = ["site-1", "site-2", "site-3"]
    assert [record["cohort"] for record in _history(tmp_path / "run")] == [left, left]
    expected = ring_state(study, [left, left])
    assert same_bits(_weights(tmp_path / "run"), expected["weights"])


def test_a_round_whose_unmasking_fails_is_skipped_and_counted(tmp_path: Path) -> None:
    study, notices = _study(rounds=3), []

    def is_lost(site: str, kind: str, round_index: int) -> bool:
        return (kind, round_index) == ("unmask", 1) and site in ("site-1", "site-2")

    channel = LossyChannel(secure_sites(study, tmp_path / "sites"), is_lost)
    run = ServerRun(
        study,
        tmp_path / "run",
        channel,
        observe=lambda record: notices.append(record["notice"]) if "notice" in record else None,
    )
    run.run(resume=False)
    records = _history(tmp_path / "run")
    assert [record["round"] for record in records] == [1, 2, 3]
    assert "3 of 5 sites helped to unmask" in records[1]["skipped"]
    assert (records[1]["loss"], records[1]["cohort"]) == (None, [])
    assert any("round 2 was skipped, the model is as before" in each for each in notices)
    assert "skipped" in round_line({"round": 2, "rounds": 3, "last": records[1]})
    expected = ring_state(study, [EVERYONE, (), EVERYONE])
    assert same_bits(_weights(tmp_path / "run"), expected["weights"])


def _killed_and_resumed(study: Study, folder: Path, at: int) -> list[dict[str, Any]]:
    sites = secure_sites(study, folder / "sites")
    try:
        _run(study, LossyChannel(sites, kill_at=at), folder / "run")
    except Interrupted:
        if not (folder / "run" / "checkpoints").glob("round-*.json"):
            return []
        _run(study, LossyChannel(sites), folder / "run", resume=True)
    return _history(folder / "run")


def _check_survivors(folder: Path) -> None:
    """No site helped to unmask one subject over two sets of sites."""
    for site in EVERYONE:
        hashes: dict[str, set[str]] = {}
        for line in _events(folder / "sites" / site / "audit.jsonl", "sent"):
            if line["kind"] == "unmask":
                hashes.setdefault(line["sum"], set()).add(line["hash"])
        assert all(len(each) == 1 for each in hashes.values())


def _instants(count: int, choose: random.Random) -> list[int]:
    return sorted(choose.sample(range(20, 60), count))  # replies of rounds 1 and 2


@pytest.mark.parametrize("at", _instants(6, random.Random(1)))
def test_a_server_killed_in_a_round_never_sums_it_twice(at: int, tmp_path: Path) -> None:
    _check_killed(at, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("at", range(60))
def test_a_server_killed_at_every_reply(at: int, tmp_path: Path) -> None:
    _check_killed(at, tmp_path)


def _check_killed(at: int, folder: Path) -> None:
    study = _study()
    records = _killed_and_resumed(study, folder, at)
    _check_survivors(folder)
    assert [record["round"] for record in records] == [1, 2]
    cohorts = [record["cohort"] for record in records]
    step, of_round = at // 5 % 4, at // 20 - 1
    # Only while sites are asked to unmask, the round cannot be summed again.
    for number, record in enumerate(records):
        assert ("skipped" in record) == (step == 3 and number == of_round)
    expected = ring_state(study, cohorts)
    assert same_bits(_weights(folder / "run"), expected["weights"])


def test_a_server_killed_after_the_sum_was_kept_applies_it_without_asking(tmp_path: Path) -> None:
    study = _study()
    sites = secure_sites(study, tmp_path / "sites")
    run = _run(study, LossyChannel(sites), tmp_path / "run")
    expected = _weights(tmp_path / "run")
    max((tmp_path / "run" / "checkpoints").glob("round-*.json")).unlink()
    channel = LossyChannel(sites)
    assert run.folder.path == tmp_path / "run"
    _run(study, channel, tmp_path / "run", resume=True)
    assert [kind for _, kind, _ in channel.replies] == ["end"] * 5
    assert same_bits(_weights(tmp_path / "run"), expected)


def test_a_lost_survey_is_found_again_over_the_same_sites_only(tmp_path: Path) -> None:
    study = _study()
    sites = secure_sites(study, tmp_path / "sites")
    with pytest.raises(Interrupted):  # at the first reply to unmask the survey
        _run(study, LossyChannel(sites, kill_at=15), tmp_path / "run")
    missing = LossyChannel(sites, lambda site, kind, index: site == "site-2")
    with pytest.raises(TooFewSites, match="found again over the same sites only"):
        _run(study, missing, tmp_path / "run", resume=True)
    _run(study, LossyChannel(sites), tmp_path / "run", resume=True)
    assert same_bits(_weights(tmp_path / "run"), ring_state(study)["weights"])


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
    study = _study()
    far = _altering(lambda m: Message(m.facts, {"masked": m.tree["masked"] + 2**61}), "train")
    _run(study, far(secure_sites(study, tmp_path / "sites")), tmp_path / "run")
    (_, record) = _history(tmp_path / "run")
    assert "beyond what these sites agreed on" in record["skipped"]
    assert "site-" not in record["skipped"]
    expected = ring_state(study, [EVERYONE, ()])
    assert same_bits(_weights(tmp_path / "run"), expected["weights"])


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
    study = _study()
    wrong = _altering(lambda m: Message(m.facts, tree), kind)
    _run(study, wrong(secure_sites(study, tmp_path / "sites")), tmp_path / "run")
    (_, record) = _history(tmp_path / "run")
    assert reason in record["missing"]["site-1"]
    left = [name for name in EVERYONE if name != "site-1"]
    assert same_bits(_weights(tmp_path / "run"), ring_state(study, [EVERYONE, left])["weights"])


@pytest.mark.parametrize("kind", ["keys", "shares"])
def test_keys_and_shares_that_were_swapped_cost_their_site_only(kind: str, tmp_path: Path) -> None:
    study = _study()

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
    _run(study, channel, tmp_path / "run")
    (_, record) = _history(tmp_path / "run")
    reason = "not signed by it" if kind == "keys" else "exactly the others"
    assert reason in record["missing"]["site-1"]
    left = [name for name in EVERYONE if name != "site-1"]
    assert record["cohort"] == left
    assert same_bits(_weights(tmp_path / "run"), ring_state(study, [EVERYONE, left])["weights"])


def test_a_late_reply_to_an_earlier_attempt_is_refused(tmp_path: Path) -> None:
    study = _study()
    late = _altering(
        lambda m: Message({**m.facts, "sum": {**m.facts["sum"], "attempt": 7}}, m.tree), "keys"
    )
    _run(study, late(secure_sites(study, tmp_path / "sites")), tmp_path / "run")
    (_, record) = _history(tmp_path / "run")
    assert "another attempt" in record["missing"]["site-1"]


def test_a_floor_that_leaves_two_contributors_ends_the_study(tmp_path: Path) -> None:
    """Three of five sites have annotated "square" on 5 images, and the floor is 9 patients."""
    study = _study(recipe={"min_cell": 9})

    def few(data: ClientData) -> ClientData:
        known = data.known.clone()
        known[5:, 1] = data.name in ("site-3", "site-4")
        return replace(data, known=known, labels=data.labels * known)

    sites = secure_sites(study, tmp_path / "sites", change=few)
    with pytest.raises(UserError, match="fewer than 3 sites contribute to square"):
        _run(study, LossyChannel(sites), tmp_path / "run")
    assert SumJournal(tmp_path / "run").contributed == [5, 2, 5]
