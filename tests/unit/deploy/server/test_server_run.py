"""The server side: its run folder, bitwise equal results after a resume, and the quorum."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.html_pages import Page
from support.remote_sites import CallingChannel, make_clients, make_sites, make_study
from support.tiny_federation import make_method

from fedquilt.core.errors import UserError
from fedquilt.core.tree import same_bits
from fedquilt.deploy.protocol.messages import Message, pack, unpack
from fedquilt.deploy.server.quorum import TooFewSites
from fedquilt.deploy.server.result import missing_model_notes
from fedquilt.deploy.server.run import ServerRun
from fedquilt.deploy.site.model import SiteModel
from fedquilt.deploy.study import study_from
from fedquilt.reports.html.card import Card
from fedquilt.runs.finished_run import read_run
from fedquilt.runs.trained_models import load_weights


def test_a_study_leaves_a_run_folder_like_any_other(tmp_path: Path) -> None:
    method = make_method("fedavg")
    study = make_study(method)
    channel = CallingChannel(make_sites(study, tmp_path / "sites"))
    assert ServerRun(study, tmp_path / "run", channel).run(resume=False)
    run = read_run(tmp_path / "run")
    assert [record["round"] for record in run.history] == [1, 2, 3]
    assert run.annotators == {
        "round": ["site-0", "site-2"],
        "square": ["site-0", "site-1"],
        "bright": ["site-1", "site-2"],
    }
    weights = load_weights(run.folder, run.models.card, "global")
    assert same_bits(weights, make_clients(method).train(method)["weights"])


def test_a_stopped_and_resumed_study_ends_with_the_same_bits(tmp_path: Path) -> None:
    method = make_method("scaffold")
    study = make_study(method)
    rounds: list[int] = []

    def observe(record: dict[str, Any]) -> None:
        rounds.extend([record["round"]] if "notice" not in record else [])

    sites = make_sites(study, tmp_path / "sites")
    run = ServerRun(
        study,
        tmp_path / "run",
        CallingChannel(sites),
        observe=observe,
        should_stop=lambda: len(rounds) >= 2,
    )
    assert not run.run(resume=False)
    assert rounds == [1, 2]
    again = make_sites(study, tmp_path / "sites")  # sites were restarted too
    with pytest.raises(UserError, match="already holds a run"):
        ServerRun(study, tmp_path / "run", CallingChannel(again)).run(resume=False)
    assert ServerRun(study, tmp_path / "run", CallingChannel(again)).run(resume=True)
    weights = load_weights(run.folder, read_run(tmp_path / "run").models.card, "global")
    assert same_bits(weights, make_clients(method).train(method)["weights"])


def test_a_round_that_a_killed_server_lost_is_repeated_with_the_same_bits(
    tmp_path: Path,
) -> None:
    """The sites have trained round 3 already; the server died before it had saved it."""
    method = make_method("scaffold")
    study = make_study(method)
    channel = CallingChannel(make_sites(study, tmp_path / "sites"))
    run = ServerRun(study, tmp_path / "run", channel)
    assert run.run(resume=False)
    expected = load_weights(run.folder, read_run(tmp_path / "run").models.card, "global")
    max((tmp_path / "run" / "checkpoints").glob("round-*.json")).unlink()
    assert run.run(resume=True)
    again = load_weights(run.folder, read_run(tmp_path / "run").models.card, "global")
    assert same_bits(again, expected)


def test_too_few_sites_end_the_run_and_are_named(tmp_path: Path) -> None:
    study = make_study(make_method("fedavg"), quorum=2)
    sites = make_sites(study, tmp_path / "sites")
    channel = CallingChannel({"site-1": sites["site-1"]})
    with pytest.raises(TooFewSites, match=r"1 of 3 sites.*missing: site-0 \(not connected\), sit"):
        ServerRun(study, tmp_path / "run", channel).run(resume=False)


def test_a_quorum_without_an_annotator_of_every_class_is_not_enough(tmp_path: Path) -> None:
    study = make_study(make_method("fedavg"), quorum=1)
    sites = make_sites(study, tmp_path / "sites")
    channel = CallingChannel({"site-1": sites["site-1"]})
    with pytest.raises(TooFewSites, match="none of those annotates round"):
        ServerRun(study, tmp_path / "run", channel).run(resume=False)


def test_notes_say_where_the_models_are(tmp_path: Path) -> None:
    for name in ("fedavg", "flexible-fl"):
        study = make_study(make_method(name))
        channel = CallingChannel(make_sites(study, tmp_path / name / "sites"))
        assert ServerRun(study, tmp_path / name / "run", channel).run(resume=False)
    assert missing_model_notes(tmp_path / "fedavg" / "run") == []
    (line,) = missing_model_notes(tmp_path / "flexible-fl" / "run")
    assert "every site has its own model" in line
    assert "fedquilt site model KIT SITE_TOML" in line


def test_a_site_that_missed_the_end_gets_the_model_when_the_study_is_resumed(
    tmp_path: Path,
) -> None:
    study = make_study(make_method("flexible-fl"), quorum=2)
    sites = make_sites(study, tmp_path / "sites")
    away, kept = CallingChannel(sites), SiteModel(tmp_path / "sites" / "site-2" / "states")
    records: list[dict[str, Any]] = []

    def observe(record: dict[str, Any]) -> None:
        records.append(record)
        if record.get("round") == 3:
            away._sites = {name: sites[name] for name in ("site-0", "site-1")}

    assert ServerRun(study, tmp_path / "run", away, observe=observe).run(resume=False)
    assert records[-1]["notice"].startswith(
        "site-2 did not receive the final model (not connected)"
    )
    assert "without the final model" in missing_model_notes(tmp_path / "run")[1]
    before = kept.read()
    assert before is not None
    assert before.rounds == 2  # what it received for the third round
    assert ServerRun(study, tmp_path / "run", CallingChannel(sites)).run(resume=True)
    after = kept.read()
    assert after is not None
    assert after.rounds == 3
    assert len(missing_model_notes(tmp_path / "run")) == 1


def test_a_study_ends_with_a_report(tmp_path: Path) -> None:
    method = make_method("fedavg")
    study = replace(make_study(method), card=Card(title="Tiny", ethics="approved"))
    assert study.hash == make_study(method).hash  # what sites agreed to is the same
    channel = CallingChannel(make_sites(study, tmp_path / "sites"))
    assert ServerRun(study, tmp_path / "run", channel).run(resume=False)
    page = Page((tmp_path / "run" / "report.html").read_text(encoding="utf-8"))
    assert "Tiny" in page.headings
    attendance = [cell.strip() for cell in page.cells[page.cells.index("has the final model") :]]
    assert attendance[2:9] == ["site-0", "3", "3", "–", "0", "0", "yes"]
    assert "approved" in (tmp_path / "run" / "MODEL_CARD.md").read_text()


def test_a_failing_report_does_not_lose_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no ink")

    monkeypatch.setattr("fedquilt.reports.html.run_report.run_content", fail)
    notices: list[str] = []
    study = make_study(make_method("fedavg"))
    channel = CallingChannel(make_sites(study, tmp_path / "sites"))
    run = ServerRun(
        study,
        tmp_path / "run",
        channel,
        observe=lambda record: notices.append(record.get("notice", "")),
    )
    assert run.run(resume=False)
    assert read_run(tmp_path / "run").result["rounds"] == 3
    assert any(
        "the report was not written (RuntimeError: no ink)" in notice
        and f"fedquilt report {tmp_path / 'run'}" in notice
        for notice in notices
    )


def test_one_finite_update_cannot_end_a_study(tmp_path: Path) -> None:
    """A body of 1e38 with weight 1e9: refused by name, and the model is as without that site."""
    method = make_method("fedavg-pl")

    def poisoned(site: str, reply: bytes) -> list[bytes]:
        message = unpack(reply)
        if site != "site-1" or "body" not in message.facts["parts"]:
            return [reply]
        body = {
            name: torch.full_like(leaf, 1e38)
            for name, leaf in message.tree["value"]["body"].items()
        }
        tree = {
            "value": {**message.tree["value"], "body": body},
            "weight": {**message.tree["weight"], "body": torch.tensor(weight, dtype=torch.float64)},
        }
        return [pack(Message(message.facts, tree))]

    weights = {}
    for weight in (1e9, 1.0):
        study, folder = make_study(method), tmp_path / f"{weight:g}"
        channel = CallingChannel(make_sites(study, folder / "sites"), poisoned)
        run = ServerRun(study, folder / "run", channel)
        assert run.run(resume=False)
        history = run.folder.history.read()
        assert [record["cohort"] for record in history] == [["site-0", "site-2"]] * 3
        for record in history:
            assert "refused: client 'site-1', part 'body'" in record["missing"]["site-1"]
        weights[weight] = load_weights(run.folder, read_run(folder / "run").models.card, "global")
    study, folder = make_study(method), tmp_path / "without"
    sites = make_sites(study, folder / "sites")
    survey = dict(sites)

    def silent(site: str, reply: bytes) -> list[bytes]:
        return [] if site == "site-1" and unpack(reply).facts["kind"] == "train" else [reply]

    run = ServerRun(study, folder / "run", CallingChannel(survey, silent))
    assert run.run(resume=False)
    expected = load_weights(run.folder, read_run(folder / "run").models.card, "global")
    assert all(same_bits(found, expected) for found in weights.values())


def test_a_site_may_not_declare_more_images_later_not_even_after_a_restart(tmp_path: Path) -> None:
    method = make_method("fedavg-pl")
    study = make_study(method)
    first = CallingChannel(make_sites(study, tmp_path / "sites"))
    stopped = ServerRun(study, tmp_path / "run", first, should_stop=lambda: True)
    assert not stopped.run(resume=False)

    def more(site: str, reply: bytes) -> list[bytes]:
        message = unpack(reply)
        return [pack(Message({**message.facts, "images": 10**6}, message.tree))]

    again = CallingChannel(make_sites(study, tmp_path / "sites"), more)
    with pytest.raises(TooFewSites, match="now declares 1000000 images, and 21 before"):
        ServerRun(study, tmp_path / "run", again).run(resume=True)


def test_agreed_images_are_not_declared_and_cap_the_weight(tmp_path: Path) -> None:
    settings = make_study(make_method("fedavg-pl")).to_dict()
    hash_before = study_from(settings).hash
    for site in settings["sites"]:
        site["images"] = 20  # and every site has 21
    study = study_from(settings)
    assert study.hash != hash_before
    said: list[bytes] = []

    def listen(site: str, reply: bytes) -> list[bytes]:
        said.append(reply)
        return [reply]

    channel = CallingChannel(make_sites(study, tmp_path / "sites"), listen)
    with pytest.raises(TooFewSites, match="a weight of 21 is above 20, the most that was agreed"):
        ServerRun(study, tmp_path / "run", channel).run(resume=False)
    assert all("images" not in unpack(reply).facts for reply in said)
