"""RemoteEngine: sends requests to the sites of a study and aggregates their replies."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fedquilt.core.bounds import RoundBounds
from fedquilt.core.fixed_point import Scales
from fedquilt.core.norms import Norms
from fedquilt.core.payload import PerClient, Update, addressed
from fedquilt.core.robust import RobustRound
from fedquilt.core.totals import Totals
from fedquilt.core.version import VERSION
from fedquilt.deploy.audit_log import AuditLog
from fedquilt.deploy.protocol.channel import Channel, WaitLimits
from fedquilt.deploy.protocol.lineage import tree_digest
from fedquilt.deploy.protocol.messages import (
    END,
    EVERY_SITE,
    SURVEY,
    TRAIN,
    VALIDATE,
    Message,
    pack,
)
from fedquilt.deploy.server.broadcast_log import BroadcastLog
from fedquilt.deploy.server.declared_images import DeclaredImages
from fedquilt.deploy.server.quorum import Quorum
from fedquilt.deploy.server.replies import Check, Replies
from fedquilt.deploy.server.unannotated_rows import annotated_by
from fedquilt.deploy.study import Study
from fedquilt.privacy.sent_parts import example_data
from fedquilt.training.agreed_bounds import round_bounds, round_rule
from fedquilt.training.agreed_scales import round_scales, survey_scales
from fedquilt.training.method import Method, State
from fedquilt.training.rounds import expected_update
from fedquilt.training.task import Task

SURVEY_ROUND = 0  # the round index that a survey's messages carry


@dataclass
class ExchangeReport:
    """Facts about one exchange, for the history and the status."""

    answered: tuple[str, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)  # site -> why it was not counted
    bytes_down: int = 0
    bytes_up: int = 0
    seconds: float = 0.0


class RemoteEngine:
    """An engine whose clients are remote sites; updates are summed as they arrive."""

    def __init__(
        self,
        study: Study,
        task: Task,
        channel: Channel,
        audit_log: AuditLog,
        images: DeclaredImages | None = None,
        broadcasts: BroadcastLog | None = None,
    ) -> None:
        self._study, self._task, self._channel, self._audit_log = study, task, channel, audit_log
        self._broadcasts = BroadcastLog() if broadcasts is None else broadcasts
        self._images = DeclaredImages(study) if images is None else images
        self.norms: Norms = {}
        self.last_exchange = ExchangeReport()  # of training, the survey or the end
        self.last_validation = ExchangeReport()  # of the last round, empty if it had none

    def survey(self, method: Method) -> Totals:
        request = self._packed(SURVEY, EVERY_SITE, SURVEY_ROUND, {})
        requests = dict.fromkeys(self._study.site_names, request)
        expected = method.survey(example_data(self._task))
        scales = survey_scales(
            self._study.recipe.rules, expected, list(self._study.agreed_images.values())
        )
        return self._collect_quorum(SURVEY, SURVEY_ROUND, requests, expected, scales=scales)

    def exchange(
        self, method: Method, payload: State, round_index: int, cohort: Sequence[str]
    ) -> Totals:
        self.last_validation = ExchangeReport()
        expected = expected_update(method, payload, cohort[0], self._task)
        requests = self._requests(TRAIN, payload, round_index, cohort)
        bounds = round_bounds(
            self._study.recipe.bounds,
            method,
            self._task,
            round_index,
            before=self.norms,
            images=self._images.of,
        )
        scales = round_scales(
            self._study.recipe.rules,
            method,
            self._task,
            round_index,
            expected,
            self._study.agreed_images,
        )
        rule = round_rule(self._study.recipe.robust, lambda site: annotated_by(self._study, site))
        totals = self._collect_quorum(TRAIN, round_index, requests, expected, bounds, scales, rule)
        for site, parts in totals.bounds.clipped.items():
            self._audit_log.record("clipped", site=site, round=round_index, parts=list(parts))
        for site, cells in totals.robust.dropped.items():
            self._audit_log.record("dropped", site=site, round=round_index, parts=dict(cells))
        return totals

    def validate(
        self, payload: State, rounds: int, expected: Update, check: Check
    ) -> Totals | None:
        """Let all sites judge the network after ``rounds`` rounds; None if no site answered."""
        requests = self._requests(VALIDATE, payload, rounds, self._study.site_names)
        replies, self.last_validation = self._ask(VALIDATE, rounds, requests, expected, check=check)
        return replies.accumulator.totals() if replies.answered else None

    def send_final(self, payload: State, rounds: int) -> dict[str, str]:
        """Send every site the model after ``rounds`` rounds; return those not reached, and why."""
        requests = self._requests(END, payload, rounds, self._study.site_names)
        _, self.last_exchange = self._ask(END, rounds, requests, {})
        return self.last_exchange.missing

    def _requests(
        self, kind: str, payload: State, round_index: int, cohort: Sequence[str]
    ) -> dict[str, bytes]:
        """Pack one message for all sites, or one each if the broadcast differs between sites."""
        names = sorted(cohort)
        if any(isinstance(part, PerClient) for part in payload.values()):
            trees = {name: addressed(payload, name) for name in names}
        else:
            trees = {EVERY_SITE: payload}
        digests = {name: tree_digest(tree) for name, tree in trees.items()}
        self._broadcasts.record(round_index, digests)
        packed = {name: self._packed(kind, name, round_index, tree) for name, tree in trees.items()}
        return {name: packed[name if name in packed else EVERY_SITE] for name in names}

    def _collect_quorum(
        self,
        kind: str,
        round_index: int,
        requests: dict[str, bytes],
        expected: Update,
        bounds: RoundBounds | None = None,
        scales: Scales | None = None,
        rule: RobustRound | None = None,
    ) -> Totals:
        """Return the totals; raise TooFewSites if the replies make no quorum."""
        replies, self.last_exchange = self._ask(
            kind, round_index, requests, expected, bounds, scales, rule
        )
        what = "the survey" if kind == SURVEY else f"round {round_index + 1}"
        Quorum(self._study, tuple(requests)).require(
            replies.answered, self.last_exchange.missing, what
        )
        return replies.accumulator.totals()

    def _ask(
        self,
        kind: str,
        round_index: int,
        requests: dict[str, bytes],
        expected: Update,
        bounds: RoundBounds | None = None,
        scales: Scales | None = None,
        rule: RobustRound | None = None,
        check: Check | None = None,
    ) -> tuple[Replies, ExchangeReport]:
        began, rules = time.perf_counter(), self._study.rules
        replies = Replies(
            self._study,
            kind,
            round_index,
            self._audit_log,
            expected,
            self._images,
            bounds,
            scales,
            rule,
            check,
        )
        quorum = Quorum(self._study, tuple(requests))
        limits = WaitLimits(
            seconds=rules.start_seconds if kind == SURVEY else rules.round_seconds,
            late_seconds=rules.late_seconds,
            is_enough=lambda: quorum.is_enough(replies.answered),
        )
        for site, request in requests.items():
            self._audit_log.record(
                "sent", site=site, kind=kind, round=round_index, bytes=len(request)
            )
        silent = self._channel.ask(requests, replies.receive, limits)
        if replies.fault is not None:
            raise replies.fault
        replies.settle()
        missing = {**silent, **replies.reasons}
        return replies, ExchangeReport(
            answered=tuple(replies.answered),
            missing={name: missing[name] for name in sorted(missing)},
            bytes_down=sum(map(len, requests.values())),
            bytes_up=replies.byte_count,
            seconds=time.perf_counter() - began,
        )

    def _packed(self, kind: str, site: str, round_index: int, payload: State) -> bytes:
        facts: dict[str, Any] = {
            "kind": kind,
            "study": self._study.hash,
            "version": VERSION,
            "site": site,
            "round": round_index,
        }
        if kind != SURVEY:
            facts["lineage"] = self._broadcasts.lineage(site, round_index).to_fact()
        return pack(Message(facts, payload))
