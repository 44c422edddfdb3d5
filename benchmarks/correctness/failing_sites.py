"""A study of 1,000 rounds in which each of eight sites fails in three of ten rounds.

    python -m benchmarks.correctness.failing_sites [ROUNDS]

Messages are those of a study, without a network. A site fails at a random moment: before it gets
the request, while it answers, after it has trained and before its reply arrives, or in the middle
of the reply; some replies arrive twice. The same study without failures is run beside it. A round
without an annotator of every class is asked for again, as a study is resumed.
"""

from __future__ import annotations

import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from sklearn.metrics import roc_auc_score
from support.remote_sites import make_engine, make_study, sites_of
from support.tiny_federation import (
    make_federation,
    make_method,
    synthetic_images,
    synthetic_labels,
)

from benchmarks.correctness.mutated_messages import CountedLog
from benchmarks.harness.result_csv import Row, write_results
from fedquilt.deploy.protocol.channel import WaitLimits
from fedquilt.deploy.server.quorum import TooFewSites
from fedquilt.deploy.site.client import SiteClient
from fedquilt.deploy.study import Study
from fedquilt.metrics.evaluation import predict_logits
from fedquilt.training.client import Workspace
from fedquilt.training.method import Method, State
from fedquilt.training.rounds import start_server

ROUNDS, SHARE = 1000, 0.3
ANNOTATED = tuple(((0, 1), (1, 2), (2, 0))[number % 3] for number in range(8))
METHODS = ("fedavg-pl",)
IMAGES = 8  # of a site: one step a round
FAILURES = ("before", "while", "after", "in the reply")
TEST_IMAGES = 2000


class FailingChannel:
    """Asks the sites by calling them; what is drawn for a site decides how far it comes."""

    def __init__(self, sites: Mapping[str, SiteClient], share: float, draw: random.Random) -> None:
        self._sites, self._share, self._draw = sites, share, draw
        self.failed: dict[str, str] = {}  # in the last exchange
        self.seen: Counter[str] = Counter()

    def ask(
        self,
        requests: Mapping[str, bytes],
        on_reply: Callable[[str, bytes], None],
        limits: WaitLimits,
    ) -> Mapping[str, str]:
        self.failed = {}
        for name, request in requests.items():
            for reply in self._replies(name, request):
                on_reply(name, reply)
        lost = (name for name, why in self.failed.items() if why in ("before", "after"))
        return dict.fromkeys(lost, "no answer")

    def _replies(self, name: str, request: bytes) -> Iterator[bytes]:
        site, fails = self._sites[name], self._draw.random() < self._share
        if not fails:
            reply = site.answer(request)
            yield reply
            if self._share and self._draw.random() < self._share:
                self.seen["twice"] += 1
                yield reply
            return
        how = self._draw.choice(FAILURES)
        self.failed[name] = how
        self.seen[how] += 1
        if how == "while":
            yield site.answer(request[:-1])  # an error reply
        elif how != "before":
            reply = site.answer(request)
            if how == "in the reply":
                yield reply[: self._draw.randrange(len(reply))]


def run_study(method: Method, rounds: int, share: float) -> dict[str, float]:
    """Run all rounds; raise AssertionError if a round counts anything but who answered."""
    began = time.perf_counter()
    study = make_study(method, rounds=rounds, annotated=ANNOTATED)
    federation = make_federation(annotated=ANNOTATED, rounds=rounds, images_each=IMAGES).fitted(
        method
    )
    shared_memory = Path("/dev/shm")
    with TemporaryDirectory(dir=shared_memory if shared_memory.exists() else None) as folder:
        sites = sites_of(study, federation, Path(folder), log=CountedLog)
        channel = FailingChannel(sites, 0.0, random.Random(7))
        engine = make_engine(study, channel, Path(folder))
        engine._audit_log = CountedLog(Path(folder) / "server.jsonl")
        server, repeated, beyond = start_server(method, study.task, engine), 0, 0
        channel._share = share
        for index in range(rounds):
            while True:
                try:
                    totals = engine.exchange(
                        method, method.broadcast(server), index, study.site_names
                    )
                    break
                except TooFewSites:
                    repeated += 1
            left_out = channel.failed.keys() | totals.bounds.refused.keys()
            beyond += len(totals.bounds.refused)
            assert set(totals.cohort) == set(study.site_names) - left_out
            assert len(set(totals.cohort)) == len(totals.cohort)
            server, engine.norms = method.update(server, totals), totals.bounds.norms
    return {
        **{f"failed_{how.replace(' ', '_')}": channel.seen[how] for how in FAILURES},
        "arrived_twice": channel.seen["twice"],
        "beyond_the_bounds": beyond,
        "rounds_asked_again": repeated,
        "auc": auc_of(method, server, study),
        "seconds": time.perf_counter() - began,
    }


def auc_of(method: Method, server: State, study: Study) -> float:
    """The mean AUC over the classes, on images that no site has."""
    draw = torch.Generator().manual_seed(1000)
    labels = synthetic_labels(TEST_IMAGES, draw)
    weights = method.global_weights(server)
    assert weights is not None
    workspace = Workspace.of(study.task, torch.device("cpu"))
    logits = predict_logits(
        workspace.forward,
        weights,
        synthetic_images(labels, draw),
        study.task,
        batch_size=256,
        device=torch.device("cpu"),
    )
    return float(roc_auc_score(labels.numpy(), logits.numpy(), average="macro"))


def main(rounds: int) -> None:
    logging.disable(logging.CRITICAL)
    rows: list[Row] = []
    for name in METHODS:
        method = make_method(name)
        for share in (0.0, SHARE):
            found = run_study(method, rounds, share)
            rows.append(
                {"method": name, "sites": 8, "rounds": rounds, "failing_share": share}
                | {key: f"{value:.4g}" for key, value in found.items()}
            )
            print(rows[-1], flush=True)
    write_results("correctness/failing_sites", rows)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
