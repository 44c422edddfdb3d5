"""Rounds of a secure study: who may be lost, what is skipped, and a server killed at any moment."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.secure_rounds import (
    EVERYONE,
    STEPS,
    events_of,
    final_weights,
    five_site_study,
    history_of,
    run_study,
)
from support.secure_study import (
    FOUR,
    Interrupted,
    LossyChannel,
    ring_state,
    secure_sites,
    secure_study,
)
from support.tiny_federation import make_method

from fedquilt.core.errors import UserError
from fedquilt.core.tree import same_bits
from fedquilt.data.client_data import ClientData
from fedquilt.deploy.server.quorum import TooFewSites
from fedquilt.deploy.server.run import ServerRun
from fedquilt.deploy.server.status import round_line
from fedquilt.deploy.server.sum_journal import SumJournal
from fedquilt.deploy.study import Study


@pytest.mark.parametrize("step", STEPS)
def test_a_site_lost_at_any_step_leaves_the_sum_of_the_others(step: str, tmp_path: Path) -> None:
    study = five_site_study()

    def is_lost(site: str, kind: str, round_index: int) -> bool:
        # The survey is round 0, too: there all sites are heard.
        return (site, kind, round_index) == ("site-3", step, 1)

    channel = LossyChannel(secure_sites(study, tmp_path / "sites"), is_lost)
    run_study(study, channel, tmp_path / "run")
    first, second = history_of(tmp_path / "run")
    left = [name for name in EVERYONE if name != "site-3" or step == "unmask"]
    assert (first["cohort"], second["cohort"]) == ([*EVERYONE], left)
    assert second["missing"] == ({} if step == "unmask" else {"site-3": "lost connection"})
    assert second["attempt"] == 0
    expected = ring_state(study, [EVERYONE, left])
    assert same_bits(final_weights(tmp_path / "run"), expected["weights"])


def test_the_history_counts_the_bytes_of_all_four_steps(tmp_path: Path) -> None:
    study = five_site_study(rounds=1)
    channel = LossyChannel(secure_sites(study, tmp_path / "sites"))
    run_study(study, channel, tmp_path / "run")
    (record,) = history_of(tmp_path / "run")
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
    study, away = five_site_study(), ("site-0", "site-4")
    sites = secure_sites(study, tmp_path / "sites")
    channel = LossyChannel(sites, lambda site, kind, index: kind == "train" and site in away)
    with pytest.raises(TooFewSites, match=r"round 1: train 0: 3 of 5 sites sent a masked vector"):
        run_study(study, channel, tmp_path / "run")
    assert SumJournal(tmp_path / "run").entry("train 0").survivors == ()
    # They are back: new masks, and those who had trained do not train again.
    trained = {name: _trained(tmp_path, name) for name in EVERYONE}
    assert trained == {name: int(name not in away) for name in EVERYONE}
    run_study(study, LossyChannel(sites), tmp_path / "run", resume=True)
    assert [record["attempt"] for record in history_of(tmp_path / "run")] == [2, 0]
    assert same_bits(final_weights(tmp_path / "run"), ring_state(study)["weights"])


def _trained(folder: Path, site: str) -> int:
    """How many rounds' states the site has kept."""
    return len(list((folder / "sites" / site / "states").glob("after-*.json")))


def test_a_class_left_with_two_annotators_is_not_summed(tmp_path: Path) -> None:
    """Four sites, three annotators of each class: without site-0 two classes have two left."""
    study = secure_study(make_method("fedavg-pl"), annotated=FOUR)
    sites = secure_sites(study, tmp_path / "sites")
    channel = LossyChannel(sites, lambda site, kind, index: (site, kind) == ("site-0", "train"))
    with pytest.raises(TooFewSites, match="fewer than 3 annotators of round, square are left"):
        run_study(study, channel, tmp_path / "run")


def test_a_study_that_reveals_goes_on_without_them(tmp_path: Path) -> None:
    study = secure_study(
        make_method("fedavg-pl"), annotated=FOUR, further={"few_annotators": "reveal"}
    )
    sites = secure_sites(study, tmp_path / "sites")
    channel = LossyChannel(sites, lambda site, kind, index: (site, kind) == ("site-0", "train"))
    run_study(study, channel, tmp_path / "run")
    left = ["site-1", "site-2", "site-3"]
    assert [record["cohort"] for record in history_of(tmp_path / "run")] == [left, left]
    expected = ring_state(study, [left, left])
    assert same_bits(final_weights(tmp_path / "run"), expected["weights"])


def test_a_round_whose_unmasking_fails_is_skipped_and_counted(tmp_path: Path) -> None:
    study, notices = five_site_study(rounds=3), []

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
    records = history_of(tmp_path / "run")
    assert [record["round"] for record in records] == [1, 2, 3]
    assert "3 of 5 sites helped to unmask" in records[1]["skipped"]
    assert (records[1]["loss"], records[1]["cohort"]) == (None, [])
    assert any("round 2 was skipped, the model is as before" in each for each in notices)
    assert "skipped" in round_line(records[1], rounds=3)
    expected = ring_state(study, [EVERYONE, (), EVERYONE])
    assert same_bits(final_weights(tmp_path / "run"), expected["weights"])


def _killed_and_resumed(study: Study, folder: Path, at: int) -> list[dict[str, Any]]:
    sites = secure_sites(study, folder / "sites")
    try:
        run_study(study, LossyChannel(sites, kill_at=at), folder / "run")
    except Interrupted:
        if not (folder / "run" / "checkpoints").glob("round-*.json"):
            return []
        run_study(study, LossyChannel(sites), folder / "run", resume=True)
    return history_of(folder / "run")


def _check_survivors(folder: Path) -> None:
    """No site helped to unmask one subject over two sets of sites."""
    for site in EVERYONE:
        hashes: dict[str, set[str]] = {}
        for line in events_of(folder / "sites" / site / "audit.jsonl", "sent"):
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
    study = five_site_study()
    records = _killed_and_resumed(study, folder, at)
    _check_survivors(folder)
    assert [record["round"] for record in records] == [1, 2]
    cohorts = [record["cohort"] for record in records]
    step, of_round = at // 5 % 4, at // 20 - 1
    # Only while sites are asked to unmask, the round cannot be summed again.
    for number, record in enumerate(records):
        assert ("skipped" in record) == (step == 3 and number == of_round)
    expected = ring_state(study, cohorts)
    assert same_bits(final_weights(folder / "run"), expected["weights"])


def test_a_server_killed_after_the_sum_was_kept_applies_it_without_asking(tmp_path: Path) -> None:
    study = five_site_study()
    sites = secure_sites(study, tmp_path / "sites")
    run = run_study(study, LossyChannel(sites), tmp_path / "run")
    expected = final_weights(tmp_path / "run")
    max((tmp_path / "run" / "checkpoints").glob("round-*.json")).unlink()
    channel = LossyChannel(sites)
    assert run.folder.path == tmp_path / "run"
    run_study(study, channel, tmp_path / "run", resume=True)
    assert [kind for _, kind, _ in channel.replies] == ["end"] * 5
    assert same_bits(final_weights(tmp_path / "run"), expected)


def test_a_lost_survey_is_found_again_over_the_same_sites_only(tmp_path: Path) -> None:
    study = five_site_study()
    sites = secure_sites(study, tmp_path / "sites")
    with pytest.raises(Interrupted):  # at the first reply to unmask the survey
        run_study(study, LossyChannel(sites, kill_at=15), tmp_path / "run")
    missing = LossyChannel(sites, lambda site, kind, index: site == "site-2")
    with pytest.raises(TooFewSites, match="found again over the same sites only"):
        run_study(study, missing, tmp_path / "run", resume=True)
    run_study(study, LossyChannel(sites), tmp_path / "run", resume=True)
    assert same_bits(final_weights(tmp_path / "run"), ring_state(study)["weights"])


def test_a_floor_that_leaves_two_contributors_ends_the_study(tmp_path: Path) -> None:
    """Three of five sites have annotated "square" on 5 images, and the floor is 9 patients."""
    study = five_site_study(recipe={"min_cell": 9})

    def few(data: ClientData) -> ClientData:
        known = data.known.clone()
        known[5:, 1] = data.name in ("site-3", "site-4")
        return replace(data, known=known, labels=data.labels * known)

    sites = secure_sites(study, tmp_path / "sites", change=few)
    with pytest.raises(UserError, match="fewer than 3 sites contribute to square"):
        run_study(study, LossyChannel(sites), tmp_path / "run")
    assert SumJournal(tmp_path / "run").contributed == [5, 2, 5]
