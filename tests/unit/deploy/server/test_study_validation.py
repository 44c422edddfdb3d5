"""A study chooses the round as a simulation does, from what the sites find on their own images."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from support.remote_sites import CallingChannel
from support.validating_study import Consortium

from fedquilt.core.tree import same_bits
from fedquilt.deploy.protocol.messages import Message, pack, unpack
from fedquilt.deploy.site.client import SiteClient
from fedquilt.deploy.site.model import SiteModel
from fedquilt.privacy.site_policy import SitePolicy
from fedquilt.runs.experiment import run
from fedquilt.runs.finished_run import Run, read_run
from fedquilt.runs.trained_models import load_weights


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Consortium:
    return Consortium(tmp_path_factory.mktemp("consortium"))


@pytest.fixture(scope="module")
def local(consortium: Consortium) -> Run:
    run(consortium.recipe, consortium.folder / "local", cache=consortium.folder / "cache")
    return read_run(consortium.folder / "local")


def validation_of(found: Run) -> list[dict[str, Any]]:
    kept = ("site_auc", "loss", "per_class_auc")
    return [{key: each["validation"][key] for key in kept} for each in found.history]


def test_a_study_serves_the_round_that_the_simulation_serves(
    consortium: Consortium, local: Run
) -> None:
    study = consortium.study()
    sites = consortium.sites(study)
    found = read_run(consortium.run(study, CallingChannel(sites)))
    assert validation_of(found) == validation_of(local)
    names = sorted(study.site_names)
    assert all(each["validation"]["sites"] == names for each in found.history)
    assert all(each["metrics"] is None for each in found.history)
    served = found.result["served"]
    assert served == local.result["served"]
    assert served["model"] == "best"
    assert served["round"] < 6, "this test needs a run that gets worse"
    for which in ("best", "last"):
        here, there = (
            load_weights(each.folder, read_run(each.path, which).models.card, "global")  # type: ignore[arg-type]
            for each in (found, local)
        )
        assert same_bits(here, there), which
    # Every site ends with the model that is served, and the audit logs name what was sent.
    best = load_weights(found.folder, read_run(found.path, "best").models.card, "global")
    for name in study.site_names:
        kept = SiteModel(consortium.folder / "sites" / name / "states").read()
        assert kept is not None
        assert (kept.kind, kept.rounds) == ("global", served["round"])
        assert same_bits(kept.weights, best)
        log = (consortium.folder / "sites" / name / "audit.jsonl").read_text().splitlines()
        sent = [each for each in map(json.loads, log) if each["event"] == "sent"]
        judged = [each["parts"] for each in sent if each["kind"] == "validate"]
        assert len(judged) == 6
        assert all(set(each) == {"validation_auc", "validation_loss"} for each in judged)
        classes = len(study.classes)
        assert judged[0]["validation_auc"] == {
            "kind": "Mean",
            "numbers": classes,
            "bytes": 16 * classes,  # two numbers a class, in float64
        }


class Away(CallingChannel):
    """Sites that are not connected in some validations, by the number of rounds done."""

    def __init__(self, sites: Mapping[str, SiteClient], away: Mapping[int, str]) -> None:
        super().__init__(sites)
        self._away = away

    def ask(self, requests: Mapping[str, bytes], *rest: Any) -> Mapping[str, str]:
        facts = unpack(next(iter(requests.values()))).facts
        absent = self._away.get(facts["round"]) if facts["kind"] == "validate" else None
        here = {name: each for name, each in requests.items() if name != absent}
        return {**super().ask(here, *rest), **({absent: "not connected"} if absent else {})}


def test_a_round_that_a_site_did_not_judge_is_not_compared(
    consortium: Consortium, local: Run
) -> None:
    best = local.result["served"]["round"]
    scores = {each["round"]: each["validation"]["site_auc"] for each in local.history}
    others = {number: score for number, score in scores.items() if number != best}
    study = consortium.study()
    site = study.site_names[0]
    channel = Away(consortium.sites(study, place="away"), {best: site})
    found = read_run(consortium.run(study, channel, "away-run"))
    record = found.history[best - 1]["validation"]
    assert record["sites"] == sorted(set(study.site_names) - {site})
    assert record["missing"] == {site: "not connected"}
    assert found.result["served"]["round"] == max(others, key=lambda number: others[number])


def test_a_study_stops_early_and_resumes_to_the_same(consortium: Consortium, local: Run) -> None:
    settings = consortium.settings | {"validation": {"share": 0.3, "patience": 1}, "rounds": 20}
    study = consortium.study(recipe=settings)
    path = consortium.run(
        study, CallingChannel(consortium.sites(study, place="early")), "early-run"
    )
    early = read_run(path)
    served = early.result["served"]
    assert served["stopped_early"]
    assert early.result["rounds"] == len(early.history) == served["trained"] < 20
    again = CallingChannel(consortium.sites(study, place="early"))
    consortium.run(study, again, "early-run", resume=True)
    assert read_run(path).result["served"] == served


def test_a_policy_can_refuse_validation_and_the_site_still_trains(consortium: Consortium) -> None:
    study = consortium.study()
    first = study.site_names[0]
    kept = ("annotators", "body", "head", "buffers", "training_loss")
    policies = {first: SitePolicy(min_cell=0, may_leave=kept)}
    channel = CallingChannel(consortium.sites(study, policies, "refusing"))
    found = read_run(consortium.run(study, channel, "refusing-run"))
    for record in found.history:
        assert first in record["cohort"]
        assert record["validation"]["sites"] == sorted(set(study.site_names) - {first})
        assert "does not let part 'validation_auc' leave" in record["validation"]["missing"][first]
    log = (consortium.folder / "refusing" / first / "audit.jsonl").read_text()
    assert '"validation_auc"' not in log


@pytest.mark.parametrize(
    ("rounds", "part", "which", "value", "reason"),
    [
        (2, "validation_auc", "value", 1.5, "outside of 0 to 1"),
        (2, "validation_loss", "value", -0.1, "outside of 0 to inf"),
        (1, "validation_auc", "weight", 1e8, "more pairs than its entries can make"),
        (2, "validation_loss", "weight", 1e8, "weights differ from those of the round before"),
    ],
)
def test_what_cannot_be_right_is_refused(
    consortium: Consortium,
    tmp_path: Path,
    rounds: int,
    part: str,
    which: str,
    value: float,
    reason: str,
) -> None:
    study = consortium.study(recipe=consortium.settings | {"rounds": rounds})
    liar = study.site_names[0]
    places = [study.classes.index(name) for name in study.site(liar).annotates]

    def lie(site: str, reply: bytes) -> list[bytes]:
        message = unpack(reply)
        if site != liar or (message.facts["kind"], message.facts["round"]) != ("validate", rounds):
            return [reply]
        numbers = message.tree[which][part].clone()
        numbers[places] = value
        tree = {**message.tree, which: {**message.tree[which], part: numbers}}
        return [pack(Message(message.facts, tree))]

    channel = CallingChannel(consortium.sites(study, place=tmp_path.name), lie)
    found = read_run(consortium.run(study, channel, f"{tmp_path.name}-run"))
    found_missing = [each["validation"]["missing"] for each in found.history]
    assert reason in found_missing[-1][liar]
    assert found_missing[:-1] == [{}] * (rounds - 1)


def test_weight_in_a_class_that_the_site_does_not_annotate_is_refused(
    consortium: Consortium,
) -> None:
    study = consortium.study(recipe=consortium.settings | {"rounds": 1})
    liar = next(name for name in study.site_names if len(study.site(name).annotates) < 3)
    foreign = next(c for c in study.classes if c not in study.site(liar).annotates)

    def lie(site: str, reply: bytes) -> list[bytes]:
        message = unpack(reply)
        if site != liar or message.facts["kind"] != "validate":
            return [reply]
        weights = {name: torch.ones_like(w) for name, w in message.tree["weight"].items()}
        return [pack(Message(message.facts, {**message.tree, "weight": weights}))]

    channel = CallingChannel(consortium.sites(study, place="foreign"), lie)
    found = read_run(consortium.run(study, channel, "foreign-run"))
    reason = found.history[0]["validation"]["missing"][liar]
    assert f"it judges {foreign!r}, which it does not annotate" in reason
