"""A secure study in this process: sites with keys, and a channel that loses whom it is told to."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from support.remote_sites import OPEN, make_study, without_validation
from support.tiny_federation import Federation, make_federation

from fedquilt.core.aggregation_rules import AggregationRules
from fedquilt.data.client_data import ClientData
from fedquilt.deploy.audit_log import AuditLog
from fedquilt.deploy.protocol.channel import WaitLimits
from fedquilt.deploy.protocol.messages import unpack
from fedquilt.deploy.secure.terms import key_text
from fedquilt.deploy.site.client import SiteClient
from fedquilt.deploy.site.memory import SiteMemory
from fedquilt.deploy.study import Study
from fedquilt.engines.sequential import SequentialEngine
from fedquilt.privacy.site_policy import SitePolicy
from fedquilt.training.method import Method, State
from fedquilt.training.rounds import run_rounds, start_server

FOUR = ((0, 1), (1, 2), (2, 0), (0, 1, 2))  # three annotators of each class
FIVE = ((0, 1, 2),) * 5  # any one may be lost
IMAGES = 21
RING = AggregationRules(summation="ring")


@cache
def site_key(name: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())


def public_key(name: str) -> str:
    return key_text(site_key(name).public_key().public_bytes_raw())


def secure_study(
    method: Method,
    *,
    annotated: Sequence[Sequence[int]] = FOUR,
    rounds: int = 2,
    recipe: Mapping[str, object] = MappingProxyType({}),
    further: Mapping[str, object] = MappingProxyType({}),
    **rules: object,
) -> Study:
    names = [f"site-{number}" for number in range(len(annotated))]
    quorum = max(-(-2 * len(names) // 3), 3)
    return make_study(
        method,
        rounds=rounds,
        images=IMAGES,
        annotated=annotated,
        keys={name: public_key(name) for name in names},
        recipe={"summation": "secure", **recipe},
        further=further,
        **{"quorum": quorum, **rules},
    )


def clients_of(study: Study) -> Federation:
    columns = [[study.classes.index(each) for each in site.annotates] for site in study.sites]
    made = make_federation(annotated=columns, rounds=study.recipe.rounds)
    return made.fitted(study.recipe.method)


def secure_sites(
    study: Study,
    folder: Path,
    policy: SitePolicy = OPEN,
    change: Callable[[ClientData], ClientData] = lambda data: data,
) -> dict[str, SiteClient]:
    """The sites, with what they keep in ``folder``; made again, they have been restarted."""
    return {
        name: SiteClient(
            study,
            without_validation(change(data)),
            SiteMemory.of(folder / name / "states", study, policy, folder / name),
            policy,
            AuditLog(folder / name / "audit.jsonl"),
            key=site_key(name),
        )
        for name, data in clients_of(study).clients.items()
    }


def ring_state(
    study: Study, cohorts: Sequence[Sequence[str]] | None = None, survey: Sequence[str] = ()
) -> State:
    """The server's state of one process that adds the same integers unmasked.

    ``cohorts`` are those of each round, an empty one for a skipped round.
    """
    method, federation = study.recipe.method, clients_of(study)
    asked = {n: c for n, c in federation.clients.items() if n in (survey or federation.clients)}
    server = start_server(method, federation.task, _engine(federation, asked))
    engine = _engine(federation, federation.clients)
    if cohorts is None:
        for round_ in run_rounds(method, federation.task, engine, server):
            server = round_.server
        return server
    for index, cohort in enumerate(cohorts):
        if cohort:
            payload = method.broadcast(server)
            server = method.update(server, engine.exchange(method, payload, index, cohort))
    return server


def _engine(federation: Federation, clients: Mapping[str, object]) -> SequentialEngine:
    return SequentialEngine(federation.task, clients, rules=RING)  # type: ignore[arg-type]


class Interrupted(BaseException):
    """The server was killed."""


class LossyChannel:
    """Calls sites; ``is_lost`` says before which request a site has fallen silent.

    It gets the site, the kind of the request and its round. ``kill_at`` ends the server after so
    many replies.
    """

    def __init__(
        self,
        sites: Mapping[str, SiteClient],
        is_lost: Callable[[str, str, int], bool] = lambda site, kind, round_index: False,
        kill_at: int | None = None,
    ) -> None:
        self.sites, self._is_lost, self._kill_at = sites, is_lost, kill_at
        self.replies: list[tuple[str, str, bytes]] = []  # site, kind, reply
        self.requests: list[tuple[str, str, bytes]] = []

    def ask(
        self,
        requests: Mapping[str, bytes],
        on_reply: Callable[[str, bytes], None],
        limits: WaitLimits,
    ) -> Mapping[str, str]:
        silent = {}
        for name, request in requests.items():
            facts = unpack(request).facts
            if self._is_lost(name, facts["kind"], facts["round"]):
                silent[name] = "lost connection"
                continue
            self.requests.append((name, facts["kind"], request))
            reply = self.sites[name].answer(request)
            if self._kill_at is not None and len(self.replies) >= self._kill_at:
                raise Interrupted
            self.replies.append((name, facts["kind"], reply))
            on_reply(name, reply)
        return silent
