"""RemoteEngine: the clients are sites elsewhere; updates are added up as they arrive."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from fedquilt.core.payload import Mean, PerClient, Update, addressed
from fedquilt.core.totals import Totals
from fedquilt.core.version import VERSION
from fedquilt.deploy.audit_log import AuditLog
from fedquilt.deploy.protocol.channel import Channel, Patience
from fedquilt.deploy.protocol.messages import END, EVERY_SITE, Message, pack
from fedquilt.deploy.server.quorum import Quorum
from fedquilt.deploy.server.replies import Replies
from fedquilt.deploy.study import Study
from fedquilt.privacy.sent_parts import example_data
from fedquilt.training.client import LOSS_PART
from fedquilt.training.method import Method, State
from fedquilt.training.task import Task

BEFORE_ROUNDS = 0  # the round a survey is numbered by


@dataclass
class Exchanged:
    """What the last exchange was like, for the history and for whoever watches."""

    answered: tuple[str, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)  # site -> why it was not counted
    bytes_down: int = 0
    bytes_up: int = 0
    seconds: float = 0.0


class RemoteEngine:
    def __init__(self, study: Study, task: Task, channel: Channel, trail: AuditLog) -> None:
        self._study, self._task, self._channel, self._trail = study, task, channel, trail
        self.last = Exchanged()

    def survey(self, method: Method) -> Totals:
        request = self._packed("survey", EVERY_SITE, BEFORE_ROUNDS, {})
        requests = dict.fromkeys(self._study.site_names, request)
        expected = method.survey(example_data(self._task))
        return self._required("survey", BEFORE_ROUNDS, requests, expected)

    def exchange(
        self, method: Method, payload: State, round_index: int, cohort: Sequence[str]
    ) -> Totals:
        expected = {
            **method.expected_update(addressed(payload, cohort[0]), self._task),
            LOSS_PART: Mean(torch.zeros(()), 0.0),
        }
        requests = self._requests("train", payload, round_index, cohort)
        return self._required("train", round_index, requests, expected)

    def end(self, payload: State) -> dict[str, str]:
        """Tell every site what was made of the last round; returns who was not reached, and why."""
        rounds = self._task.round_count
        self._collect(END, rounds, self._requests(END, payload, rounds, self._study.site_names), {})
        return self.last.missing

    def _requests(
        self, kind: str, payload: State, round_index: int, cohort: Sequence[str]
    ) -> dict[str, bytes]:
        """One message for everybody, unless the broadcast differs from site to site."""
        names = sorted(cohort)
        if not any(isinstance(part, PerClient) for part in payload.values()):
            return dict.fromkeys(names, self._packed(kind, EVERY_SITE, round_index, payload))
        return {
            name: self._packed(kind, name, round_index, addressed(payload, name)) for name in names
        }

    def _required(
        self, kind: str, round_index: int, requests: dict[str, bytes], expected: Update
    ) -> Totals:
        """What came of it, if those who answered are enough."""
        found = self._collect(kind, round_index, requests, expected)
        what = "the survey" if kind == "survey" else f"round {round_index + 1}"
        Quorum(self._study, tuple(requests)).require(found.answered, self.last.missing, what)
        return found.accumulator.totals()

    def _collect(
        self, kind: str, round_index: int, requests: dict[str, bytes], expected: Update
    ) -> Replies:
        began, rules = time.perf_counter(), self._study.rules
        found = Replies(self._study, kind, round_index, self._trail, expected)
        attendance = Quorum(self._study, tuple(requests))
        patience = Patience(
            seconds=rules.start_seconds if kind == "survey" else rules.round_seconds,
            late_seconds=rules.late_seconds,
            is_enough=lambda: attendance.is_enough(found.answered),
        )
        for site, request in requests.items():
            self._trail.record("sent", site=site, kind=kind, round=round_index, bytes=len(request))
        silent = self._channel.ask(requests, found.take, patience)
        missing = {**silent, **found.reasons}
        self.last = Exchanged(
            answered=tuple(found.answered),
            missing={name: missing[name] for name in sorted(missing)},
            bytes_down=sum(map(len, requests.values())),
            bytes_up=found.byte_count,
            seconds=time.perf_counter() - began,
        )
        return found

    def _packed(self, kind: str, site: str, round_index: int, payload: State) -> bytes:
        facts = {
            "kind": kind,
            "study": self._study.hash,
            "version": VERSION,
            "site": site,
            "round": round_index,
        }
        return pack(Message(facts, payload))
