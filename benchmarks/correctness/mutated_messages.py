"""What 100,000 damaged and hostile messages do to a server and to a site.

    python -m benchmarks.correctness.mutated_messages [COUNT]

Real messages of four methods are mutated in seven ways and handed to the code that reads them on
arrival, half of them to the server and half to a site. A process of its own does it: had it died,
its row would say so. Every message has to end as counted or refused, with a line in the audit log,
and nothing may be raised.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from support.remote_sites import CallingChannel, make_engine, make_sites, make_study
from support.tiny_federation import make_method

from benchmarks.harness.message_mutators import MUTATORS
from benchmarks.harness.result_csv import Row, write_results
from fedquilt.core.payload import Update
from fedquilt.deploy.audit_log import AuditLog
from fedquilt.deploy.protocol.messages import END, unpack
from fedquilt.deploy.server.declared_images import DeclaredImages
from fedquilt.deploy.server.replies import Replies
from fedquilt.deploy.site.client import SiteClient
from fedquilt.training.method import Method
from fedquilt.training.rounds import expected_update, run_rounds, start_server

METHODS = ("fedavg-pl", "rscfed", "fedalc", "scene-gcn")  # means, gathered parts, own payloads
COUNT = 100_000


class CountedLog(AuditLog):
    """Counts the lines that an audit log would get, without waiting for a disk."""

    lines = 0

    def record(self, event: str, **facts: Any) -> None:
        json.dumps({"event": event, **facts}, allow_nan=False)
        self.lines += 1


class Recorded(CallingChannel):
    """Keeps the requests and the replies of whole studies."""

    def __init__(self, sites: dict[str, SiteClient]) -> None:
        super().__init__(sites, self._note)
        self.requests: list[bytes] = []
        self.replies: list[bytes] = []

    def _note(self, site: str, reply: bytes) -> list[bytes]:
        self.replies.append(reply)
        return [reply]

    def ask(self, requests: Any, *rest: Any) -> Any:
        self.requests += [requests["site-1"]] if "site-1" in requests else []
        return super().ask(requests, *rest)


def recorded_study(method: Method, folder: Path) -> tuple[Recorded, Any]:
    """Run a whole study and return its messages, and the first broadcast."""
    study = make_study(method)
    channel = Recorded(make_sites(study, folder))
    engine = make_engine(study, channel, folder)
    server = start_server(method, study.task, engine)
    first = method.broadcast(server)
    for round_ in run_rounds(method, study.task, engine, server):
        server = round_.server
    engine.send_final(method.broadcast(server), study.task.round_count)
    return channel, first


@dataclass(frozen=True)
class Target:
    """One side of a study, and the messages that it gets when nobody attacks."""

    messages: list[bytes]
    handle: Callable[[bytes, bytes], str]  # (the original, what arrives) -> what became of it
    log: CountedLog


def server(method: Method, folder: Path) -> Target:
    channel, first = recorded_study(method, folder)
    study, log = make_study(method), CountedLog(folder / "mutated.jsonl")
    expected: dict[str, Update] = {
        "survey": method.survey(channel._sites["site-1"]._data),
        "train": expected_update(method, first, "site-1", study.task),
        END: {},
    }
    facts = {reply: unpack(reply).facts for reply in channel.replies}

    def handle(original: bytes, content: bytes) -> str:
        kind, index = facts[original]["kind"], facts[original]["round"]
        images = DeclaredImages(study)
        replies = Replies(study, kind, index, log, expected[kind], images)
        replies.receive(facts[original]["site"], content)
        replies.settle()
        if replies.fault is not None:
            raise replies.fault
        return "counted" if replies.answered else "refused"

    return Target(channel.replies, handle, log)


def site(method: Method, folder: Path) -> Target:
    channel, _ = recorded_study(method, folder)
    target = make_sites(make_study(method), folder / "again")["site-1"]
    target._audit_log = log = CountedLog(folder / "mutated.jsonl")

    def handle(_: bytes, content: bytes) -> str:
        reply = unpack(target.answer(content))  # what leaves can always be read
        return "refused" if "error" in reply.facts else "counted"

    return Target(channel.requests, handle, log)


SIDES = {"to the server": server, "to a site": site}


def attack(direction: str, count: int, sender: Any) -> None:
    """Hand mutated messages to one side, and send what was seen."""
    logging.disable(logging.CRITICAL)
    draw, seen, worst = random.Random(direction), Counter[str](), (0.0, "")
    before = 0
    for method in METHODS:
        with TemporaryDirectory() as folder:
            target = SIDES[direction](make_method(method), Path(folder))
            before = before or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            for number in range(count // len(METHODS)):
                mutate = MUTATORS[number % len(MUTATORS)]
                original = draw.choice(target.messages)
                content = mutate(original, draw)
                lines, began = target.log.lines, time.perf_counter()
                try:
                    seen[target.handle(original, content)] += 1
                except BaseException as error:  # the number that has to be 0
                    seen["raised"] += 1
                    print(direction, method, mutate.__name__, repr(error)[:300], flush=True)
                worst = max(worst, (time.perf_counter() - began, f"{mutate.__name__}, {method}"))
                seen["without an audit line"] += target.log.lines == lines
                seen["messages"] += 1
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    facts = {"worst": worst, "before": before, "after": after}
    sender.send(dict(seen) | facts)


def row(direction: str, count: int) -> Row:
    """Attack in a process of its own, which may die."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=attack, args=(direction, count, sender))
    began = time.perf_counter()
    process.start()
    sender.close()
    try:
        found = receiver.recv()
    except EOFError:
        found = {}
    process.join()
    seconds, where = found.get("worst", (0.0, ""))
    return {
        "direction": direction,
        "messages": found.get("messages", 0),
        "refused": found.get("refused", 0),
        "counted": found.get("counted", 0),
        "raised": found.get("raised", 0),
        "without_an_audit_line": found.get("without an audit line", 0),
        "exit_code": process.exitcode,
        "worst_ms": f"{1000 * seconds:.0f}",
        "worst_at": where,
        "peak_memory_before_mb": round(found.get("before", 0) / 1024),
        "peak_memory_after_mb": round(found.get("after", 0) / 1024),
        "seconds": f"{time.perf_counter() - began:.0f}",
    }


def main(count: int) -> None:
    rows = [row(direction, count // 2) for direction in SIDES]
    for each in rows:
        print(each, flush=True)
    write_results("correctness/mutated_messages", rows)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else COUNT)
