"""Compact payloads in a study: the bits and bytes of the simulation, and nothing odd gets in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.remote_sites import (
    CallingChannel,
    RecordedChannel,
    make_clients,
    make_engine,
    make_sites,
    make_study,
)
from support.secure_study import IMAGES, LossyChannel, ring_state, secure_sites, secure_study
from support.tiny_federation import make_method
from torch import Tensor

from fedquilt.core.compact_payload import PayloadOptions
from fedquilt.core.errors import UserError
from fedquilt.core.settings import plain
from fedquilt.core.tree import byte_count, leaves, same_bits
from fedquilt.deploy.protocol.messages import Message, pack, unpack
from fedquilt.deploy.site.memory import SiteMemory
from fedquilt.deploy.study import Study
from fedquilt.engines.sequential import UNSENT, SequentialEngine
from fedquilt.training.rounds import Round, run_rounds, start_server

OPTIONS = {
    "bfloat16": PayloadOptions(numbers="bfloat16"),
    "int8": PayloadOptions(numbers="int8"),
    "int8, fifth": PayloadOptions(numbers="int8", top_share=0.2),
    "hundredth": PayloadOptions(top_share=0.01, error_feedback=False),
}
LIAR = "site-2"


def study_with(name: str, options: PayloadOptions, **recipe: object) -> Study:
    return make_study(
        make_method(name), recipe={"payload": plain(options, {}), **recipe}, images=IMAGES
    )


def rounds_of(study: Study, channel: object, folder: Path, **where: Any) -> list[Round]:
    engine = make_engine(study, channel, folder)
    server = where.pop("server", None) or start_server(study.recipe.method, study.task, engine)
    return list(run_rounds(study.recipe.method, study.task, engine, server, **where))


def simulated(study: Study) -> list[Round]:
    federation = make_clients(study.recipe.method)
    engine = SequentialEngine(federation.task, federation.clients, rules=study.recipe.rules)
    server = start_server(study.recipe.method, federation.task, engine)
    return list(run_rounds(study.recipe.method, federation.task, engine, server))


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("name", ["fedavg-pl", "scaffold", "fedmlp", "fedlsm"])
def test_a_study_ends_with_the_bits_and_bytes_of_the_simulation(
    name: str, kind: str, tmp_path: Path
) -> None:
    study = study_with(name, OPTIONS[kind])
    heard: list[int] = []

    def note(site: str, reply: bytes) -> list[bytes]:
        heard.append(len(reply))
        return [reply]

    found = rounds_of(study, CallingChannel(make_sites(study, tmp_path), note), tmp_path)
    expected = simulated(study)
    assert same_bits(found[-1].server, expected[-1].server)
    assert [each.bytes_up for each in found] == [each.bytes_up for each in expected]
    plain_bytes = simulated(make_study(make_method(name), images=IMAGES))[0].bytes_up
    assert expected[0].bytes_up < plain_bytes
    sent = sum(heard[-len(study.sites) :])  # with headers and names of tensors
    assert sent < expected[-1].bytes_up + 3 * 8_000


@pytest.mark.parametrize("rules", [{"summation": "ring"}, {"bounds": {"beyond": "clip"}}])
def test_bounds_and_ring_sums_see_what_was_decoded(rules: dict[str, Any], tmp_path: Path) -> None:
    study = study_with("fedavg-pl", OPTIONS["int8, fifth"], **rules)
    found = rounds_of(study, CallingChannel(make_sites(study, tmp_path)), tmp_path)
    assert same_bits(found[-1].server, simulated(study)[-1].server)


def test_what_was_not_sent_stays_at_the_site_over_a_restart(tmp_path: Path) -> None:
    study = study_with("fedavg-pl", OPTIONS["int8, fifth"])
    expected = rounds_of(study, CallingChannel(make_sites(study, tmp_path / "a")), tmp_path / "a")
    half = rounds_of(
        study, CallingChannel(make_sites(study, tmp_path / "b")), tmp_path / "b"
    )  # all sites have gone further than the round to which the server now goes back
    sites = make_sites(study, tmp_path / "b")
    folder = tmp_path / "b" / "site-0"
    memory = SiteMemory.of(folder / "states", study, sites["site-0"]._policy, folder)
    unsent = memory.states.before(2)[UNSENT]
    assert {*unsent} == {"body", "head"}
    assert all(float(lost.abs().sum()) > 0 for _, lost in leaves(unsent["body"]))
    again = rounds_of(
        study, CallingChannel(sites), tmp_path / "b", server=half[1].server, first_round=2
    )
    assert same_bits(again[-1].server, expected[-1].server)


def _altered(reply: bytes, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> bytes:
    """The reply with the first encoded tensor of the body changed."""
    message = unpack(reply)
    body = dict(message.tree["value"]["body"])
    path = next(name for name, leaf in body.items() if not isinstance(leaf, Tensor))
    body[path] = change(dict(body[path]))
    value = {**message.tree["value"], "body": body}
    return pack(Message(message.facts, {**message.tree, "value": value}))


BAD: dict[str, tuple[Callable[[dict[str, Tensor]], Any], str]] = {
    "other numbers": (lambda e: e | {"numbers": e["numbers"].float()}, "not the agreed one"),
    "more numbers": (lambda e: e | {"numbers": e["numbers"].repeat(2)}, "not the agreed one"),
    "no scale": (lambda e: {k: v for k, v in e.items() if k != "scale"}, "not the agreed one"),
    "a table more": (lambda e: e | {"more": torch.zeros(1)}, "not the agreed one"),
    "below a name": (lambda e: e | {"numbers": {"odd": e["numbers"]}}, "not the agreed one"),
    "not encoded": (lambda e: torch.zeros(8, 1, 3, 3), "not the agreed one"),
    "fewer places": (lambda e: e | {"chosen": torch.zeros_like(e["chosen"])}, "not as many"),
    "infinite scale": (lambda e: e | {"scale": e["scale"] * torch.inf}, "NaN or infinite"),
}


def test_an_odd_encoding_is_refused_by_name_and_leaves_no_trace(tmp_path: Path) -> None:
    study = study_with("fedavg-pl", OPTIONS["int8, fifth"])
    replies: dict[str, bytes] = {}

    def note(site: str, reply: bytes) -> list[bytes]:
        replies[site] = reply
        return [reply]

    engine = make_engine(study, CallingChannel(make_sites(study, tmp_path), note), tmp_path)
    method = study.recipe.method
    server = start_server(method, study.task, engine)
    payload = method.broadcast(server)
    engine.exchange(method, payload, 0, study.site_names)

    def after(heard: dict[str, list[bytes]]) -> tuple[Any, dict[str, str]]:
        engine = make_engine(study, RecordedChannel(heard), tmp_path)
        totals = engine.exchange(method, payload, 0, study.site_names)
        return method.update(server, totals), engine.last_exchange.missing

    honest = {site: [reply] for site, reply in replies.items() if site != LIAR}
    expected, _ = after(honest)
    for kind, (change, reason) in BAD.items():
        found, missing = after({**honest, LIAR: [_altered(replies[LIAR], change)]})
        assert reason in missing[LIAR], kind
        assert same_bits(found, expected), kind
    for kind, wrong in {"repeated": [0, 0], "outside": [0, 10**6], "negative": [-1, 2]}.items():
        few = study_with("fedavg-pl", OPTIONS["hundredth"])
        assert _refusal_of_places(few, wrong, tmp_path / kind), kind


def _refusal_of_places(study: Study, wrong: list[int], folder: Path) -> bool:
    """Whether a reply with these first places is refused for them."""
    folder.mkdir()

    def lie(site: str, reply: bytes) -> list[bytes]:
        if site != LIAR or "parts" not in unpack(reply).facts or "value" not in unpack(reply).tree:
            return [reply]
        if "body" not in unpack(reply).tree["value"]:
            return [reply]
        message = unpack(reply)
        body = dict(message.tree["value"]["body"])
        path = max(body, key=lambda name: byte_count(body[name]))
        places = body[path]["places"].clone()
        places[:2] = torch.tensor(wrong)
        if wrong[1] > len(places):
            places = places.sort().values
        body[path] = body[path] | {"places": places.to(torch.int32)}
        value = {**message.tree["value"], "body": body}
        return [pack(Message(message.facts, {**message.tree, "value": value}))]

    engine = make_engine(study, CallingChannel(make_sites(study, folder), lie), folder)
    method = study.recipe.method
    server = start_server(method, study.task, engine)
    engine.exchange(method, method.broadcast(server), 0, study.site_names)
    why = engine.last_exchange.missing.get(LIAR, "")
    return "place" in why and "part 'body'" in why


UNSENT_BUFFERS = {"payload": {"send_fixed": False}}


@pytest.mark.parametrize("name", ["fedlgt", "scene-gcn"])
def test_sites_build_fixed_buffers_themselves(name: str, tmp_path: Path) -> None:
    study = make_study(make_method(name), recipe=UNSENT_BUFFERS)
    asked: list[bytes] = []

    class Noting(CallingChannel):
        def ask(self, requests: Any, on_reply: Any, limits: Any) -> Any:
            asked.extend(requests.values())
            return super().ask(requests, on_reply, limits)

    channel = Noting(make_sites(study, tmp_path))
    found = rounds_of(study, channel, tmp_path)
    expected = make_clients(study.recipe.method).train(study.recipe.method)
    assert same_bits(found[-1].server, expected)
    for request in asked[-len(study.sites) :]:
        assert not study.task.fixed_buffers.keys() & unpack(request).tree["weights"].keys()
    engine = make_engine(study, channel, tmp_path)
    assert engine.send_final(study.recipe.method.broadcast(found[-1].server), 3) == {}


def test_a_site_that_built_other_buffers_says_so(tmp_path: Path) -> None:
    study = make_study(make_method("fedlgt"), recipe=UNSENT_BUFFERS)
    sites = make_sites(study, tmp_path)
    task = sites[LIAR]._payload._task
    other = {name: value + 1 for name, value in task.fixed_buffers.items()}
    sites[LIAR]._payload._task = replace(task)
    sites[LIAR]._payload._task.__dict__["fixed_buffers"] = other
    engine = make_engine(study, CallingChannel(sites), tmp_path)
    method = study.recipe.method
    server = start_server(method, study.task, engine)
    engine.exchange(method, method.broadcast(server), 0, study.site_names)
    assert "are not those that this site has built" in engine.last_exchange.missing[LIAR]


def test_secure_sums_send_no_fixed_buffers_either(tmp_path: Path) -> None:
    study = secure_study(make_method("fedlgt"), recipe=UNSENT_BUFFERS)
    found = rounds_of(study, LossyChannel(secure_sites(study, tmp_path)), tmp_path)
    expected = ring_state(secure_study(make_method("fedlgt")))
    assert same_bits(found[-1].server, expected)


def test_what_would_save_nothing_or_cannot_be_built_is_refused() -> None:
    with pytest.raises(UserError, match="a masked number takes 8 bytes whatever it was"):
        secure_study(make_method("fedavg"), recipe={"payload": {"numbers": "int8"}})
    method = make_method("fedlgt", text_encoder="open-clip:ViT-B-32/laion2b")
    with pytest.raises(UserError, match="have no files for text_encoder 'open-clip"):
        make_study(method, recipe=UNSENT_BUFFERS)
