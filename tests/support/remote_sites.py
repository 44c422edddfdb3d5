"""Sites of a study in this process: what they say is what travels, only without a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from support.tiny_federation import CLASSES, SIZE, Federation, make_federation

from fedquilt.core.settings import plain
from fedquilt.data.client_data import ClientData
from fedquilt.deploy.audit_log import AuditLog
from fedquilt.deploy.protocol.channel import WaitLimits
from fedquilt.deploy.server.broadcast_log import BROADCASTS_FILE, BroadcastLog
from fedquilt.deploy.server.remote_engine import RemoteEngine
from fedquilt.deploy.site.client import SiteClient
from fedquilt.deploy.site.data import SiteData
from fedquilt.deploy.site.memory import SiteMemory
from fedquilt.deploy.study import Study, study_from
from fedquilt.methods import all_methods
from fedquilt.privacy.site_policy import SitePolicy
from fedquilt.training.method import Method

# Any two of the three annotate everything: a round goes on without the third.
ANNOTATED = ((0, 1), (1, 2), (2, 0))
OPEN = SitePolicy(min_cell=0)


def make_study(
    method: Method,
    *,
    rounds: int = 3,
    images: int | None = None,
    recipe: Mapping[str, object] = MappingProxyType({}),
    annotated: Sequence[Sequence[int]] = ANNOTATED,
    keys: Mapping[str, str] = MappingProxyType({}),
    further: Mapping[str, object] = MappingProxyType({}),
    **rules: object,
) -> Study:
    """The study of ``make_federation``: the same names, classes, network and seed."""
    return study_from(
        {
            "name": "tiny",
            "classes": list(CLASSES),
            "images": {"size": SIZE, "channels": 1},
            "sites": [
                {
                    "name": f"site-{number}",
                    "organisation": f"hospital_{number}",
                    "annotates": [CLASSES[column] for column in columns],
                    **({} if images is None else {"images": images}),
                    **({"key": keys[f"site-{number}"]} if keys else {}),
                }
                for number, columns in enumerate(annotated)
            ],
            **further,
            "server": {"host": "localhost", "bind": "127.0.0.1"},
            "rules": rules,
            "recipe": {
                "seed": 7,
                "rounds": rounds,
                "model": {"backbone": "small-cnn"},
                "method": plain(method, {Method: ("method", all_methods())}),
                **recipe,
            },
        }
    )


def make_clients(method: Method, rounds: int = 3) -> Federation:
    return make_federation(annotated=ANNOTATED, rounds=rounds).fitted(method)


def make_sites(
    study: Study, folder: Path, policy: SitePolicy = OPEN, rounds: int = 3
) -> dict[str, SiteClient]:
    return sites_of(study, make_clients(study.recipe.method, rounds), folder, policy)


def sites_of(
    study: Study,
    federation: Federation,
    folder: Path,
    policy: SitePolicy = OPEN,
    log: Callable[[Path], AuditLog] = AuditLog,
) -> dict[str, SiteClient]:
    """The sites of a federation, each with its memory and audit log in a folder of its own."""
    return {
        name: SiteClient(
            study,
            without_validation(data),
            SiteMemory.of(folder / name / "states", study, policy, folder / name),
            policy,
            log(folder / name / "audit.jsonl"),
        )
        for name, data in federation.clients.items()
    }


def without_validation(data: ClientData) -> SiteData:
    """The data of a site that trains on all of its images."""
    nothing = replace(
        data, indices=data.indices[:0], labels=data.labels[:0], known=data.known[:0], patients=None
    )
    return SiteData(training=data, validation=nothing)


class CallingChannel:
    """Asks sites by calling them; ``alter`` turns a reply into the replies that arrive."""

    def __init__(
        self,
        sites: Mapping[str, SiteClient],
        alter: Callable[[str, bytes], list[bytes]] = lambda site, reply: [reply],
    ) -> None:
        self._sites, self._alter = sites, alter

    def ask(
        self,
        requests: Mapping[str, bytes],
        on_reply: Callable[[str, bytes], None],
        limits: WaitLimits,
    ) -> Mapping[str, str]:
        for name, request in requests.items():
            if name in self._sites:
                for reply in self._alter(name, self._sites[name].answer(request)):
                    on_reply(name, reply)
        return {name: "not connected" for name in requests if name not in self._sites}


class RecordedChannel:
    """Gives the same replies whatever it is asked."""

    def __init__(self, replies: Mapping[str, list[bytes]]) -> None:
        self._replies = replies

    def ask(
        self,
        requests: Mapping[str, bytes],
        on_reply: Callable[[str, bytes], None],
        limits: WaitLimits,
    ) -> Mapping[str, str]:
        for name, replies in self._replies.items():
            for reply in replies:
                on_reply(name, reply)
        return {name: "not connected" for name in requests if name not in self._replies}


def make_engine(study: Study, channel: object, folder: Path) -> RemoteEngine:
    return RemoteEngine(
        study,
        study.task,
        channel,  # type: ignore[arg-type]
        AuditLog(folder / "server.jsonl"),
        broadcasts=BroadcastLog(folder / BROADCASTS_FILE),
    )
