"""RemoteEngine: sends requests to the sites of a study and aggregates their replies."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from fedquilt.core.bounds import RoundBounds
from fedquilt.core.errors import UserError
from fedquilt.core.fixed_point import Scales
from fedquilt.core.norms import EarlierNorms
from fedquilt.core.payload import PerClient, Update, addressed
from fedquilt.core.robust import RobustRound
from fedquilt.core.totals import Totals
from fedquilt.core.version import VERSION
from fedquilt.deploy.audit_log import AuditLog
from fedquilt.deploy.protocol.channel import Channel, WaitLimits
from fedquilt.deploy.protocol.lineage import chained, tree_digest
from fedquilt.deploy.protocol.messages import (
    END,
    EVERY_SITE,
    SURVEY,
    TRAIN,
    VALIDATE,
    Message,
    pack,
)
from fedquilt.deploy.secure.terms import FEWEST
from fedquilt.deploy.server.broadcast_log import BroadcastLog
from fedquilt.deploy.server.declared_images import DeclaredImages
from fedquilt.deploy.server.quorum import Quorum
from fedquilt.deploy.server.replies import Check, ExchangeReport, Replies
from fedquilt.deploy.server.secure_sums import SecureSums, WantedSum
from fedquilt.deploy.server.sum_journal import SumJournal
from fedquilt.deploy.server.unannotated_rows import annotated_by
from fedquilt.deploy.study import Study
from fedquilt.privacy.sent_parts import example_data
from fedquilt.training.agreed_bounds import round_bounds, round_rule
from fedquilt.training.agreed_scales import round_scales, survey_scales
from fedquilt.training.fixed_buffers import with_fixed, without_fixed
from fedquilt.training.method import Method, State
from fedquilt.training.rounds import expected_update
from fedquilt.training.task import Task

SURVEY_ROUND = 0  # the round index that a survey's messages carry


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
        journal: SumJournal | None = None,
        sites: Sequence[str] | None = None,
    ) -> None:
        """``sites`` are those that take part, by default all; secure sums count on all."""
        self._study, self._task, self._channel, self._audit_log = study, task, channel, audit_log
        self._broadcasts = BroadcastLog() if broadcasts is None else broadcasts
        self._images = DeclaredImages(study) if images is None else images
        self._sites = study.site_names if sites is None or study.is_secure else tuple(sites)
        self.norms = EarlierNorms()
        self.last_exchange = ExchangeReport()  # of training, the survey or the end
        self.last_validation = ExchangeReport()  # of the last round, empty if it had none
        self._secure: SecureSums | None = None
        if study.is_secure:
            kept = SumJournal() if journal is None else journal
            self._secure = SecureSums(study, channel, audit_log, kept)

    def survey(self, method: Method) -> Totals:
        expected = method.survey(example_data(self._task))
        scales = survey_scales(
            self._study.recipe.rules, expected, list(self._study.agreed_images.values())
        )
        if self._secure is not None and scales is not None:
            totals = self._summed(
                SURVEY, SURVEY_ROUND, {}, self._study.site_names, expected, scales
            )
            self._keep_contributed(totals, self._secure.journal)
            return totals
        request = self._packed(SURVEY, EVERY_SITE, SURVEY_ROUND, {})
        requests = dict.fromkeys(self._sites, request)
        replies = self._replies(SURVEY, SURVEY_ROUND, expected, scales=scales)
        return self._collect_quorum(replies, requests)

    def exchange(
        self, method: Method, payload: State, round_index: int, cohort: Sequence[str]
    ) -> Totals:
        self.last_validation = ExchangeReport()
        expected = expected_update(method, with_fixed(payload, self._task), cohort[0], self._task)
        scales = round_scales(
            self._study.recipe.rules,
            method,
            self._task,
            round_index,
            expected,
            self._study.agreed_images,
        )
        if self._secure is not None and scales is not None:
            return self._summed(TRAIN, round_index, payload, cohort, expected, scales)
        requests = self._requests(TRAIN, payload, round_index, cohort)
        bounds = round_bounds(
            self._study.recipe.bounds,
            method,
            self._task,
            round_index,
            before=self.norms,
            images=self._images.of,
        )
        rule = round_rule(self._study.recipe.robust, lambda site: annotated_by(self._study, site))
        replies = self._replies(TRAIN, round_index, expected, bounds, scales, rule)
        totals = self._collect_quorum(replies, requests)
        for site, parts in totals.bounds.clipped.items():
            self._audit_log.record("clipped", site=site, round=round_index, parts=list(parts))
        for site, cells in totals.robust.dropped.items():
            self._audit_log.record("dropped", site=site, round=round_index, parts=dict(cells))
        return totals

    def validate(
        self, payload: State, rounds: int, expected: Update, check: Check
    ) -> Totals | None:
        """Let all sites judge the network after ``rounds`` rounds; None if no site answered."""
        requests = self._requests(VALIDATE, payload, rounds, self._sites)
        replies = self._replies(VALIDATE, rounds, expected, check=check)
        self.last_validation = self._ask(replies, requests)
        return replies.accumulator.totals() if replies.answered else None

    def ask_once(
        self, kind: str, rounds: int, tree: State, expected: Update, check: Check
    ) -> Totals | None:
        """Ask all sites about the final model, which they have; None if no site answered."""
        request = self._packed(kind, EVERY_SITE, rounds, tree)
        requests = dict.fromkeys(self._study.site_names, request)
        replies = self._replies(kind, rounds, expected, check=check)
        self.last_exchange = self._ask(replies, requests)
        return replies.accumulator.totals() if replies.answered else None

    def send_final(self, payload: State, rounds: int) -> dict[str, str]:
        """Send every site the model after ``rounds`` rounds; return those not reached, and why."""
        requests = self._requests(END, payload, rounds, self._sites)
        self.last_exchange = self._ask(self._replies(END, rounds, {}), requests)
        return self.last_exchange.missing

    def _summed(
        self,
        summed: str,
        round_index: int,
        payload: State,
        cohort: Sequence[str],
        expected: Update,
        scales: Scales,
    ) -> Totals:
        """Return the totals of a secure sum; only the request for the vector has the payload."""
        assert self._secure is not None

        def requests(kind: str, facts: Mapping[str, Any], sites: Sequence[str]) -> dict[str, bytes]:
            if kind == TRAIN:
                return self._requests(kind, payload, round_index, sites, facts)
            return dict.fromkeys(sites, self._packed(kind, EVERY_SITE, round_index, {}, facts))

        sent = _by_site(without_fixed(payload, self._task), cohort)
        wanted = WantedSum(
            summed=summed,
            round_index=round_index,
            cohort=cohort,
            expected=expected,
            scales=scales,
            source=chained([f"{site} {tree_digest(tree)}" for site, tree in sent.items()]),
            requests=requests,
        )
        try:
            return self._secure.totals(wanted)
        finally:
            self.last_exchange = self._secure.report

    def _keep_contributed(self, survey: Totals, journal: SumJournal) -> None:
        """Keep how many sites contribute to each class; raise UserError if they are too few."""
        study, counts = self._study, [int(count) for count in survey.sum("annotators")]
        journal.keep_contributed(counts)
        thin = study.sum_terms.thin_classes(study.site_names, FEWEST, counts)
        if thin and not study.sum_terms.allows_few:
            raise UserError(
                f"after the disclosure floor fewer than {FEWEST} sites contribute to "
                f"{', '.join(thin)}, so sums for them would show single sites' numbers; lower "
                "min_cell, leave the classes out, or agree on few_annotators = 'reveal'"
            )

    def _requests(
        self,
        kind: str,
        payload: State,
        round_index: int,
        cohort: Sequence[str],
        further: Mapping[str, Any] = MappingProxyType({}),
    ) -> dict[str, bytes]:
        """Pack one message for all sites, or one each if the broadcast differs between sites."""
        names, trees = sorted(cohort), _by_site(without_fixed(payload, self._task), cohort)
        digests = {name: tree_digest(tree) for name, tree in trees.items()}
        self._broadcasts.record(round_index, digests)
        packed = {
            name: self._packed(kind, name, round_index, tree, further)
            for name, tree in trees.items()
        }
        return {name: packed[name if name in packed else EVERY_SITE] for name in names}

    def _replies(
        self,
        kind: str,
        round_index: int,
        expected: Update,
        bounds: RoundBounds | None = None,
        scales: Scales | None = None,
        rule: RobustRound | None = None,
        check: Check | None = None,
    ) -> Replies:
        """Return the place for the replies to a request, and how they are checked and summed."""
        request = self._study, kind, round_index, self._audit_log, expected, self._images
        return Replies(*request, bounds, scales, rule, check)

    def _collect_quorum(self, replies: Replies, requests: dict[str, bytes]) -> Totals:
        """Return the totals; raise TooFewSites if the replies make no quorum."""
        self.last_exchange = self._ask(replies, requests)
        survey = replies.kind == SURVEY
        what = "the survey" if survey else f"round {replies.round_index + 1}"
        Quorum(self._study, tuple(requests)).require(
            replies.answered, self.last_exchange.missing, what
        )
        return replies.accumulator.totals()

    def _ask(self, replies: Replies, requests: dict[str, bytes]) -> ExchangeReport:
        began, rules, kind = time.perf_counter(), self._study.rules, replies.kind
        quorum = Quorum(self._study, tuple(requests))
        limits = WaitLimits(
            seconds=rules.start_seconds if kind == SURVEY else rules.round_seconds,
            late_seconds=rules.late_seconds,
            is_enough=lambda: quorum.is_enough(replies.answered),
        )
        for site, request in requests.items():
            self._audit_log.record(
                "sent", site=site, kind=kind, round=replies.round_index, bytes=len(request)
            )
        silent = self._channel.ask(requests, replies.receive, limits)
        if replies.fault is not None:
            raise replies.fault
        replies.settle()
        bytes_down = sum(map(len, requests.values()))
        return replies.report(silent, bytes_down, time.perf_counter() - began)

    def _packed(
        self,
        kind: str,
        site: str,
        round_index: int,
        payload: State,
        further: Mapping[str, Any] = MappingProxyType({}),
    ) -> bytes:
        facts: dict[str, Any] = {
            "kind": kind,
            "study": self._study.hash,
            "version": VERSION,
            "site": site,
            "round": round_index,
            **further,
        }
        if kind in (TRAIN, VALIDATE, END):
            facts["lineage"] = self._broadcasts.lineage(site, round_index).to_fact()
            if self._task.layout.fixed:
                facts["fixed"] = tree_digest(self._task.fixed_buffers)
        return pack(Message(facts, payload))


def _by_site(payload: State, cohort: Sequence[str]) -> dict[str, State]:
    """Return one broadcast for all sites, or one each if it differs between them."""
    if any(isinstance(part, PerClient) for part in payload.values()):
        return {name: addressed(payload, name) for name in sorted(cohort)}
    return {EVERY_SITE: payload}
