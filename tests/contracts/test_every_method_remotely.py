"""Every method through messages: the same bits as in one process, and nothing bad gets in."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

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
from support.tiny_federation import METHOD_NAMES, make_method

from fedquilt.core.payload import Gather, Mean, Part, Sum, Update, weight_of
from fedquilt.core.tree import Tree, leaves, same_bits, tree_map
from fedquilt.deploy.protocol.messages import (
    LENGTH_BYTES,
    MAGIC,
    Message,
    pack,
    unpack,
    update_message,
    update_of,
)
from fedquilt.deploy.server.unannotated_rows import HEAD, annotated_by, keeps_unannotated_rows
from fedquilt.deploy.study import Study
from fedquilt.privacy.unannotated_rows import annotator_parts
from fedquilt.training.client import LOSS_PART
from fedquilt.training.method import Method, State
from fedquilt.training.rounds import run_rounds, start_server

BOUNDS = ("centralised", "full-labels")  # need labels or images that no site sends
METHODS = tuple(name for name in METHOD_NAMES if name not in BOUNDS)
every_method = pytest.mark.parametrize("name", METHODS)
LIAR = "site-2"


@every_method
def test_remote_rounds_end_with_the_bits_of_local_ones(name: str, tmp_path: Path) -> None:
    method = make_method(name)
    study = make_study(method)
    engine = make_engine(study, CallingChannel(make_sites(study, tmp_path)), tmp_path)
    server = start_server(method, study.task, engine)
    for round_ in run_rounds(method, study.task, engine, server):
        server = round_.server
    assert same_bits(server, make_clients(method).train(method))


class Heard:
    """One round of three honest sites, as it arrived."""

    def __init__(self, method: Method) -> None:
        self.method = method
        folder = Path(mkdtemp())
        self.study: Study = make_study(self.method, max_message_bytes=8_000_000)
        replies: dict[str, bytes] = {}

        def note(site: str, reply: bytes) -> list[bytes]:
            replies[site] = reply
            return [reply]

        channel = CallingChannel(make_sites(self.study, folder), note)
        engine = make_engine(self.study, channel, folder)
        self.server: State = start_server(self.method, self.study.task, engine)
        self.payload = self.method.broadcast(self.server)
        engine.exchange(self.method, self.payload, 0, self.study.site_names)
        self.replies = replies

    def after(self, replies: dict[str, list[bytes]], folder: Path) -> tuple[State, dict[str, str]]:
        """The server's state after a round with these replies, and whom it did not count."""
        engine = make_engine(self.study, RecordedChannel(replies), folder)
        totals = engine.exchange(self.method, self.payload, 0, self.study.site_names)
        return self.method.update(self.server, totals), engine.last_exchange.missing


@cache
def heard(name: str) -> Heard:
    return Heard(make_method(name))


def _first_leaf(tree: Tree, change: Callable[[torch.Tensor], torch.Tensor]) -> Tree:
    """The tree with its first floating leaf changed."""
    done = []

    def maybe(leaf: torch.Tensor) -> torch.Tensor:
        if done or not leaf.is_floating_point() or not leaf.numel():
            return leaf
        done.append(True)
        return change(leaf)

    return tree_map(maybe, tree)


def _with_number(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def change(leaf: torch.Tensor) -> torch.Tensor:
        flat = leaf.clone().reshape(-1)
        flat[0] = value
        return flat.reshape(leaf.shape)

    return change


def _main_part(update: Update) -> str:
    """The part that carries most numbers."""
    return max(update, key=lambda name: sum(leaf.numel() for _, leaf in leaves(update[name].value)))


def _valued(update: Update, change: Callable[[torch.Tensor], torch.Tensor]) -> Update:
    name = _main_part(update)
    return {**update, name: replace(update[name], value=_first_leaf(update[name].value, change))}


def _grown(update: Update) -> Update:
    """The change of the network, of every sign and place, a hundred times as large."""
    body = update["body"]
    return {**update, "body": replace(body, value=tree_map(_hundredfold, body.value))}


def _hundredfold(leaf: torch.Tensor) -> torch.Tensor:
    return leaf * 100 if leaf.is_floating_point() else leaf


def _named(reply: bytes, name: str) -> bytes:
    """The reply with a tensor of this name in place of its tensors."""
    start = len(MAGIC) + LENGTH_BYTES
    end = start + int.from_bytes(reply[len(MAGIC) : start], "big")
    table = json.dumps({name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    return reply[:end] + len(table).to_bytes(8, "little") + table + bytes(4)


def _weighted(update: Update, change: Callable[[torch.Tensor], torch.Tensor]) -> Update:
    """With a changed weight of the training loss, which every method sends, and of the body."""
    changed: dict[str, Part] = dict(update)
    for name in (LOSS_PART, "body"):
        part = update.get(name)
        if isinstance(part, Mean):
            changed[name] = Mean(part.value, change(weight_of(part)))
    return changed


def _renamed(update: Update) -> Update:
    name = _main_part(update)
    value = update[name].value
    if isinstance(value, torch.Tensor):
        return {**update, name: replace(update[name], value={"odd": value})}
    first, *others = value
    return {
        **update,
        name: replace(
            update[name], value={"odd": value[first]} | {key: value[key] for key in others}
        ),
    }


def _other_kind(update: Update) -> Update:
    name = _main_part(update)
    kind = Sum if isinstance(update[name], Gather) else Gather
    return {**update, name: kind(update[name].value)}


UPDATES: dict[str, tuple[Callable[[Update], Update], str]] = {
    "nan": (lambda u: _valued(u, _with_number(math.nan)), "NaN or infinite"),
    "infinity": (lambda u: _valued(u, _with_number(math.inf)), "NaN or infinite"),
    "minus infinity": (lambda u: _valued(u, _with_number(-math.inf)), "NaN or infinite"),
    "negative weight": (lambda u: _weighted(u, lambda w: -w), "not negative"),
    "nan weight": (lambda u: _weighted(u, lambda w: w * math.nan), "finite"),
    "zero weight": (lambda u: _weighted(u, torch.zeros_like), "weight is 0"),
    "huge weight": (lambda u: _weighted(u, lambda w: w * 0 + 1e30), "above the limit"),
    "weight of 1e9": (lambda u: _weighted(u, lambda w: w * 0 + 1e9), "the most that was agreed"),
    "1e38": (lambda u: _valued(u, _with_number(1e38)), "its norm of"),
    "body of 1e38 with weight 1e9": (
        lambda u: _valued(_weighted(u, lambda w: w * 0 + 1e9), _with_number(1e38)),
        "the most that was agreed",
    ),
    "missing part": (lambda u: {k: v for k, v in u.items() if k != LOSS_PART}, "wrong parts"),
    "extra part": (lambda u: {**u, "extra": Gather(torch.zeros(1))}, "wrong parts"),
    "renamed": (_renamed, "names differ"),
    "other kind": (_other_kind, "expected a"),
    "shape": (lambda u: _valued(u, lambda leaf: torch.stack([leaf, leaf])), "of shape"),
    "dtype": (lambda u: _valued(u, torch.Tensor.half), "expected torch.float"),
}
FACTS: dict[str, tuple[dict[str, object], str]] = {
    "stale round": ({"round": -1}, "round is -1"),
    "future round": ({"round": 1}, "round is 1"),
    "another site's name": ({"site": "site-0"}, "site is 'site-0'"),
    "another study": ({"study": "0" * 64}, "its study is"),
    "another version": ({"version": "0.0.0"}, "its version is"),
    "a survey's answer": ({"kind": "survey"}, "its kind is"),
    "no parts": ({"parts": None}, "no update"),
    "unknown kind": ({"parts": {"body": {"kind": "Pickle"}}}, "no valid kind"),
}


@every_method
def test_bad_updates_are_refused_by_name_and_leave_no_trace(name: str, tmp_path: Path) -> None:
    round_ = heard(name)
    honest = {site: [reply] for site, reply in round_.replies.items() if site != LIAR}
    expected, missing = round_.after(honest, tmp_path)
    assert missing == {LIAR: "not connected"}
    message = unpack(round_.replies[LIAR])
    facts = {key: value for key, value in message.facts.items() if key != "parts"}
    bad = {
        kind: (pack(update_message(facts, alter(update_of(message)))), reason)
        for kind, (alter, reason) in UPDATES.items()
    }
    bad |= {
        kind: (pack(Message({**message.facts, **wrong}, message.tree)), reason)
        for kind, (wrong, reason) in FACTS.items()
    }
    whole = round_.replies[LIAR]
    if "body" in message.facts["parts"]:  # otherwise nothing is sent but the training loss
        grown = pack(update_message(facts, _grown(update_of(message))))
        bad["norm x 100"] = grown, "its norm of"
    bad["deep name"] = _named(whole, "a/" * 100 + "a"), "levels deep"
    bad["deep and long name"] = _named(whole, "a/" * 3000 + "a"), "at most 1000 characters"
    bad["a name with an empty part"] = _named(whole, "a//b"), "an empty part"
    bad["kind of no type"] = (
        pack(Message({**message.facts, "parts": {"body": {"kind": []}}}, message.tree)),
        "no valid kind",
    )
    bad["cut short"] = whole[:-3], "damaged"
    bad["garbage"] = b"\x80\x04garbage", "not a fedquilt message"
    bad["empty"] = b"", "not a fedquilt message"
    bad["too large"] = whole + bytes(8_000_000), "bytes, the study allows"
    for number, (kind, (reply, reason)) in enumerate(bad.items()):
        # In turn before and after the others: an accumulator may be begun or grown by it.
        order = [LIAR, *honest] if number % 2 else [*honest, LIAR]
        replies = {**honest, LIAR: [reply]}
        after, missing = round_.after({site: replies[site] for site in order}, tmp_path)
        assert reason in missing[LIAR], kind
        assert same_bits(after, expected), kind


@every_method
def test_a_second_update_of_a_site_is_refused(name: str, tmp_path: Path) -> None:
    round_ = heard(name)
    once = {site: [reply] for site, reply in round_.replies.items()}
    twice = {site: [reply, reply] for site, reply in round_.replies.items()}
    expected, _ = round_.after(once, tmp_path)
    after, missing = round_.after(twice, tmp_path)
    assert missing == {}  # each was counted, once
    assert same_bits(after, expected)
    assert "already counted" in (tmp_path / "server.jsonl").read_text()


@every_method
def test_a_changed_row_of_a_class_the_site_does_not_annotate(name: str, tmp_path: Path) -> None:
    """Refused under every method in which an honest site cannot change it, or has no say in it."""
    method = make_method(name)
    if hasattr(method, "unannotated") and method.unannotated == "negative":
        method = replace(method, unannotated="skip")
    round_ = Heard(method)
    message = unpack(round_.replies[LIAR])
    update, foreign = update_of(message), ~annotated_by(round_.study, LIAR)
    assert foreign.tolist() == [False, True, False]  # site-2 annotates the third and the first
    facts = {key: value for key, value in message.facts.items() if key != "parts"}
    own = [part for part in annotator_parts(method) if part in update]
    if not keeps_unannotated_rows(method) and not own:
        return
    part = HEAD if keeps_unannotated_rows(method) else own[0]
    honest = {site: [reply] for site, reply in round_.replies.items() if site != LIAR}
    expected, _ = round_.after(honest, tmp_path)
    reply = pack(update_message(facts, {**update, part: _moved(update[part], foreign)}))
    after, missing = round_.after({**honest, LIAR: [reply]}, tmp_path)
    assert "annotate" in missing[LIAR]
    assert same_bits(after, expected)


def _moved(part: Part, rows: torch.Tensor) -> Part:
    def change(leaf: torch.Tensor) -> torch.Tensor:
        other = leaf.clone()
        other[rows] += 1
        return other

    if isinstance(part, Mean) and weight_of(part).ndim:
        return Mean(tree_map(change, part.value), change(weight_of(part)))
    return replace(part, value=tree_map(change, part.value))
