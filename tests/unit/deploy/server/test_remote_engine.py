"""The server's engine for remote sites: its memory does not grow with their number."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from support.remote_sites import (
    CallingChannel,
    make_clients,
    make_engine,
    make_sites,
    make_study,
)
from support.tiny_federation import make_method

from fedquilt.core.norms import EarlierNorms
from fedquilt.core.payload import Sum
from fedquilt.deploy.protocol.channel import WaitLimits
from fedquilt.deploy.protocol.messages import pack, unpack, update_message, update_of
from fedquilt.engines.sequential import SequentialEngine
from fedquilt.training.rounds import run_rounds, start_server


class MeasuringChannel(CallingChannel):
    """Records how many bytes of tensors are alive after each reply."""

    alive: list[int]

    def ask(
        self,
        requests: Mapping[str, bytes],
        on_reply: Callable[[str, bytes], None],
        limits: WaitLimits,
    ) -> Mapping[str, str]:
        self.requests = requests
        replies = {name: self._sites[name].answer(request) for name, request in requests.items()}
        self.alive = []
        for name, reply in replies.items():
            on_reply(name, reply)
            self.alive.append(_tensor_bytes())
        return {}


def _tensor_bytes() -> int:
    gc.collect()
    found = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]
    return sum({each.data_ptr(): each.nbytes for each in found}.values())


def test_updates_are_summed_on_arrival_and_freed(tmp_path: Path) -> None:
    method = make_method("fedavg")
    study = make_study(method)
    channel = MeasuringChannel(make_sites(study, tmp_path))
    engine = make_engine(study, channel, tmp_path)
    server = start_server(method, study.task, engine)
    (started, *_) = run_rounds(method, study.task, engine, server)  # without medians, updates wait
    engine.exchange(method, method.broadcast(started.server), 1, study.site_names)
    first, second, third = channel.alive
    # One accumulator, allocated for the first update; of the others only a few norms are kept.
    assert first <= second <= third <= first + 200


def test_all_sites_get_the_same_bytes_object(tmp_path: Path) -> None:
    method = make_method("fedavg")
    study = make_study(method)
    channel = MeasuringChannel(make_sites(study, tmp_path))
    engine = make_engine(study, channel, tmp_path)
    server = start_server(method, study.task, engine)
    engine.exchange(method, method.broadcast(server), 0, study.site_names)
    assert len({id(request) for request in channel.requests.values()}) == 1


def test_a_payload_per_client_reaches_its_own_site_only(tmp_path: Path) -> None:
    method = make_method("scene-gcn")
    study = make_study(method)
    channel = MeasuringChannel(make_sites(study, tmp_path))
    engine = make_engine(study, channel, tmp_path)
    server = start_server(method, study.task, engine)
    totals = engine.exchange(method, method.broadcast(server), 0, study.site_names)
    assert totals.cohort == study.site_names
    swapped = channel.requests["site-1"]
    assert b"RefusedRequest" in channel._sites["site-0"].answer(swapped)


def test_a_study_and_a_simulation_judge_by_the_same_norms(tmp_path: Path) -> None:
    """At factor 1.002 one of three is above the median; it is not if a million was usual."""
    method = make_method("fedavg-pl")
    study = make_study(method, recipe={"bounds": {"norm_factor": 1.002}})
    remote = make_engine(study, CallingChannel(make_sites(study, tmp_path)), tmp_path)
    local = SequentialEngine(study.task, make_clients(method).clients, rules=study.recipe.rules)
    server, refused = start_server(method, study.task, remote), []
    for index in range(2):
        first, second = (
            engine.exchange(method, method.broadcast(server), index, study.site_names).bounds
            for engine in (remote, local)
        )
        assert first.facts() == second.facts()
        refused.append({*first.refused})
        usual = dict.fromkeys(first.norms.last, torch.tensor(1e6))
        remote.norms = local.norms = EarlierNorms({}, usual)
    assert refused == [{"site-0"}, set()]


def test_a_survey_that_claims_an_undeclared_class_is_refused(tmp_path: Path) -> None:
    """Site 2 annotates the third class and the first; here it claims the second as well."""
    method = make_method("fedavg")
    study = make_study(method)

    def claim_all(site: str, reply: bytes) -> list[bytes]:
        message = unpack(reply)
        facts = {key: value for key, value in message.facts.items() if key != "parts"}
        claimed = {**update_of(message), "annotators": Sum(torch.ones(3))}
        return [pack(update_message(facts, claimed))] if site == "site-2" else [reply]

    engine = make_engine(study, CallingChannel(make_sites(study, tmp_path), claim_all), tmp_path)
    totals = engine.survey(method)
    assert "does not annotate: 'square'" in engine.last_exchange.missing["site-2"]
    assert totals.sum("annotators").tolist() == [1.0, 2.0, 1.0]  # of sites 0 and 1 alone
