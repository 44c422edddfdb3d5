"""Noise at the sites of a study: from the system's entropy, paid once, and in a ledger."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.remote_sites import CallingChannel, make_clients, make_engine, make_sites, make_study
from support.secure_study import secure_sites, secure_study
from support.tiny_federation import make_method

from fedquilt.core.errors import UserError
from fedquilt.core.noise import SeededNoise
from fedquilt.core.payload import weight_of
from fedquilt.core.tree import same_bits
from fedquilt.deploy.protocol.messages import unpack, update_of
from fedquilt.deploy.server.run import ServerRun
from fedquilt.deploy.site.client import SiteClient
from fedquilt.deploy.study import Study
from fedquilt.privacy.ledger import LEDGER_FILE, PrivacyLedger
from fedquilt.privacy.site_policy import SitePolicy
from fedquilt.runs.finished_run import read_run
from fedquilt.training.method import Method, State
from fedquilt.training.rounds import run_rounds, start_server

ROUNDS = 3
DELTA = 1e-3
TRAINED = {"epsilon": 5.0, "delta": DELTA, "training": True}
SMALL = {"epsilon": 5.0, "delta": DELTA, "parts": ["prototypes", "difficulty"], "releases": 2}
IN_TRAINING, ON_PARTS = "fedavg-pl", "fedmlp"


def method_of(name: str) -> Method:
    given = {"positive_weight": "none", "weighting": "uniform", "head_rows": "annotators"}
    return make_method(name, **(given if name == IN_TRAINING else {}))


def study_of(name: str, **privacy: object) -> Study:
    noise = {**(TRAINED if name == IN_TRAINING else SMALL), **privacy}
    return make_study(method_of(name), rounds=ROUNDS, recipe={"privacy": noise})


class Asked:
    """A study whose requests and replies are kept."""

    def __init__(self, study: Study, folder: Path, policy: SitePolicy | None = None) -> None:
        self.study, self.folder = study, folder
        self.policy = policy or SitePolicy(min_cell=0)
        self.sites = make_sites(study, folder, self.policy)
        self.requests: dict[str, list[bytes]] = {name: [] for name in self.sites}
        self.replies: dict[str, list[bytes]] = {name: [] for name in self.sites}

    def ask(self, requests, on_reply, limits):
        for name, request in requests.items():
            self.requests[name].append(request)
        return CallingChannel(self.sites, self._noted).ask(requests, on_reply, limits)

    def _noted(self, site: str, reply: bytes) -> list[bytes]:
        self.replies[site].append(reply)
        return [reply]

    def run(self) -> State:
        method, task = self.study.recipe.method, self.study.task
        engine = make_engine(self.study, self, self.folder)
        server = start_server(method, task, engine)
        for round_ in run_rounds(method, task, engine, server):
            server = round_.server
        return server

    def restarted(self, site: str) -> SiteClient:
        return make_sites(self.study, self.folder, self.policy)[site]

    def ledger(self, site: str) -> PrivacyLedger:
        return PrivacyLedger(self.folder / site / LEDGER_FILE)


def in_one_process(study: Study) -> State:
    federation = make_clients(study.recipe.method, ROUNDS)
    task = replace(federation.task, privacy=study.recipe.privacy)
    return replace(federation, task=task).train(study.recipe.method)


def weights_of(state: State) -> torch.Tensor:
    return torch.cat([leaf.flatten() for leaf in state["weights"].values()])


@pytest.mark.parametrize("name", [IN_TRAINING, ON_PARTS])
def test_with_a_seed_it_is_the_simulation_and_in_a_study_it_is_not(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_of(name)
    expected = in_one_process(study)
    drawn = [Asked(study, tmp_path / str(number)).run() for number in range(2)]
    assert not same_bits(drawn[0], expected)
    assert not same_bits(drawn[0], drawn[1])
    monkeypatch.setattr("fedquilt.deploy.site.client.SystemNoise", SeededNoise)
    assert same_bits(Asked(study, tmp_path / "seeded").run(), expected)


@pytest.mark.parametrize("name", [IN_TRAINING, ON_PARTS])
def test_the_ledger_has_all_that_left_and_its_cost(name: str, tmp_path: Path) -> None:
    asked = Asked(study_of(name), tmp_path)
    asked.run()
    for site, replies in asked.replies.items():
        charges = asked.ledger(site).charges
        by_round: dict[int, set[str]] = {}
        for each in charges:
            by_round.setdefault(each.round, set()).update(each.parts)
        sent = [update_of(unpack(reply)) for reply in replies]
        assert set(sent[0]) == by_round[-1]
        for index, update in enumerate(sent[1:]):
            resting = set(asked.study.recipe.privacy.parts) - by_round[index]
            assert set(update) == by_round[index] | (resting & set(update))
            assert not any(weight_of(update[part]).any() for part in resting & set(update))
        assert asked.ledger(site).spent(DELTA, "image") == pytest.approx(5.0, rel=0.01)
        assert asked.ledger(site).spent(DELTA, "image") <= 5.0 * (1 + 1e-6)
        bare = {part for each in charges if each.release is None for part in each.parts}
        assert ("body" in bare) == (name == ON_PARTS)


@pytest.mark.parametrize("name", [IN_TRAINING, ON_PARTS])
def test_a_repeated_round_costs_nothing_and_new_noise_is_refused(name: str, tmp_path: Path) -> None:
    asked = Asked(study_of(name), tmp_path)
    asked.run()
    site, before = "site-0", asked.ledger("site-0").charges
    last = len(asked.requests[site]) - 1
    again = asked.restarted(site).answer(asked.requests[site][last])
    first, second = (update_of(unpack(reply)) for reply in (asked.replies[site][last], again))
    assert same_bits(first["body"].value, second["body"].value)
    assert asked.ledger(site).charges == before
    (tmp_path / site / "states" / "noised-train.msg").unlink()
    answer = unpack(asked.restarted(site).answer(asked.requests[site][last]))
    if name == IN_TRAINING:
        assert answer.facts["error"] == "RefusedRequest"
        assert "has spent epsilon 5 of the 5 that the study agreed on" in answer.facts["text"]
        assert asked.ledger(site).charges == before
    else:
        frozen = update_of(answer)
        assert not weight_of(frozen["prototypes"]).any()
        assert asked.ledger(site).spent(DELTA, "image") <= 5.0 * (1 + 1e-6)
    lines = [
        json.loads(each) for each in (tmp_path / site / "audit.jsonl").read_text().splitlines()
    ]
    charged = [line["epsilon"] for line in lines if line["event"] == "charged"]
    assert charged == sorted(charged)
    assert charged[-1] == pytest.approx(5.0, rel=0.01)
    rested = [line["reason"] for line in lines if line["event"] == "rested"]
    assert len(rested) == (name == ON_PARTS)


def test_a_sites_policy_limits_noise_over_all_studies(tmp_path: Path) -> None:
    once = Asked(study_of(IN_TRAINING), tmp_path, SitePolicy(min_cell=0, max_epsilon=6.0))
    once.run()
    other = study_of(IN_TRAINING, epsilon=4.0)
    (tmp_path / "site-0" / "states").rename(tmp_path / "site-0" / "states of the first study")
    sites = make_sites(other, tmp_path, once.policy)
    again = Asked(other, tmp_path / "second", SitePolicy(min_cell=0))
    again.sites["site-0"] = sites["site-0"]
    again.run()
    answers = [unpack(reply).facts for reply in again.replies["site-0"]]
    assert "error" not in answers[0]
    assert "exceed its policy (max_epsilon = 6)" in answers[-1]["text"]
    spent = PrivacyLedger(tmp_path / "site-0" / LEDGER_FILE).spent(DELTA, "image")
    assert 5.0 < spent <= 6.0


def test_a_site_that_asks_for_noise_refuses_a_study_without(tmp_path: Path) -> None:
    plain = make_study(method_of(IN_TRAINING), rounds=ROUNDS)
    site = make_sites(plain, tmp_path, SitePolicy(min_cell=0, max_epsilon=1.0))["site-0"]
    request = Asked(plain, tmp_path / "other")
    request.run()
    reply = unpack(site.answer(request.requests["site-0"][0]))
    assert "asks for noise (max_epsilon = 1), and the study adds none" in reply.facts["text"]


def test_a_study_refuses_what_noise_cannot_cover() -> None:
    with pytest.raises(UserError, match=r"privacy\.training: .*fills in labels"):
        make_study(make_method("fedmlp"), recipe={"privacy": TRAINED})


def test_few_annotators_need_noise_on_everything(tmp_path: Path) -> None:
    few = ((0, 1), (0, 1), (0, 1, 2), (0, 1))
    noise, further = {"privacy": TRAINED}, {"few_annotators": "noise"}
    method = method_of(IN_TRAINING)
    with pytest.raises(UserError, match="fewer than 3 sites annotate bright"):
        secure_study(method, annotated=few, recipe=noise)
    with pytest.raises(UserError, match=r"needs noise on every part .*privacy\.training = true"):
        secure_study(method, annotated=few, further=further)
    study = secure_study(method, annotated=few, recipe=noise, further=further)
    sites = secure_sites(study, tmp_path)
    engine = make_engine(study, CallingChannel(sites), tmp_path)
    server = start_server(method, study.task, engine)
    for round_ in run_rounds(method, study.task, engine, server):
        assert round_.skipped is None
        server = round_.server
    history = (tmp_path / "site-2" / LEDGER_FILE).read_text().splitlines()
    assert [json.loads(line)["round"] for line in history] == [-1, 0, 1]
    assert json.loads(history[-1])["noise_multiplier"] > 0


def test_a_server_that_was_killed_gets_the_same_answers_for_nothing(tmp_path: Path) -> None:
    """It repeats a round; the sites answer as before, so the study ends within its budget."""
    study = study_of(IN_TRAINING)
    asked = Asked(study, tmp_path)

    class Killed(BaseException):
        pass

    replies = 0

    def cut(site: str, reply: bytes) -> list[bytes]:
        nonlocal replies
        replies += 1
        if replies == 8:  # the survey, the first round, and two sites of the second
            raise Killed
        return [reply]

    with pytest.raises(Killed):
        ServerRun(study, tmp_path / "run", CallingChannel(asked.sites, cut)).run(resume=False)
    before = asked.ledger("site-0").charges
    sites = {name: asked.restarted(name) for name in asked.sites}
    ServerRun(study, tmp_path / "run", CallingChannel(sites)).run(resume=True)
    finished = read_run(tmp_path / "run")
    assert [record["round"] for record in finished.history] == [1, 2, 3]
    assert all(record["loss"] is None for record in finished.history)
    charges = asked.ledger("site-0").charges
    assert charges[: len(before)] == before
    assert [each.round for each in charges] == [-1, 0, 1, 2]
    assert asked.ledger("site-0").spent(DELTA, "image") <= 5.0 * (1 + 1e-6)
