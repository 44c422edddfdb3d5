"""SecureSums: the server's side of secure summation, over the same channel as everything else.

An attempt that fails before anything is unmasked is repeated with new masks. From the first request
to unmask on, the sum is found or its round is skipped: never a second sum over other sites.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.fixed_point import Scales, from_vector, vector_length
from fedquilt.core.payload import Update
from fedquilt.core.totals import Totals
from fedquilt.deploy.audit_log import AuditLog
from fedquilt.deploy.protocol.channel import Channel, WaitLimits
from fedquilt.deploy.protocol.messages import SURVEY, TRAIN, Message
from fedquilt.deploy.secure.facts import (
    KEYS,
    MASKED,
    SHARES,
    SUM,
    UNMASK,
    attempt_facts,
    keys_fact,
    keys_in,
    subject_of,
    sum_facts,
    texts_fact,
    texts_in,
)
from fedquilt.deploy.secure.masks import Attempt
from fedquilt.deploy.secure.server_half import SecureSum, SumAborted
from fedquilt.deploy.secure.site_half import survivors_hash
from fedquilt.deploy.secure.site_key import signers
from fedquilt.deploy.secure.terms import FEWEST
from fedquilt.deploy.server.quorum import Quorum, TooFewSites
from fedquilt.deploy.server.replies import ExchangeReport
from fedquilt.deploy.server.sum_checks import AbsurdSum, check_round_sums, check_survey_sums
from fedquilt.deploy.server.sum_journal import SumJournal
from fedquilt.deploy.server.sum_step import SPARE_BYTES, SumStep
from fedquilt.deploy.study import Study
from fedquilt.training.rounds import SkippedRound

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 2  # in one job; a new job may admit sites that are back

# (kind, facts, sites) -> one request for each site
Requests = Callable[[str, Mapping[str, Any], Sequence[str]], dict[str, bytes]]


class LostSum(Exception):
    """Raised when a sum that sites were asked to unmask is not found."""


@dataclass(frozen=True, kw_only=True)
class WantedSum:
    """What is summed, over whom, and how sites are asked for it."""

    summed: str
    round_index: int
    cohort: Sequence[str]
    expected: Update
    scales: Scales
    source: str  # a hash of what sites are sent to compute it from
    requests: Requests

    @property
    def subject(self) -> str:
        return subject_of(self.summed, self.round_index)

    @property
    def title(self) -> str:
        return "the survey" if self.summed == SURVEY else f"round {self.round_index + 1}"


class SecureSums:
    """Sums over the sites of one study."""

    def __init__(
        self, study: Study, channel: Channel, audit_log: AuditLog, journal: SumJournal
    ) -> None:
        self._study, self._channel, self._audit_log = study, channel, audit_log
        self.journal = journal
        self.report = ExchangeReport()

    def totals(self, wanted: WantedSum) -> Totals:
        """Return the totals of a cohort.

        Raise TooFewSites if no attempt got so far that anything was unmasked, SkippedRound for a
        round that cannot be summed any more.
        """
        began, self.report = time.perf_counter(), ExchangeReport()
        try:
            vector = self._vector(wanted)
            return self._checked(wanted, vector)
        except (LostSum, AbsurdSum) as error:
            self._audit_log.record("skipped", sum=wanted.subject, reason=str(error))
            if wanted.summed == TRAIN:
                raise SkippedRound(str(error)) from None
            if isinstance(error, AbsurdSum):
                raise UserError(
                    f"the survey: {error}, and masked answers do not tell whose fault it is; check "
                    "the sites' data and begin a new study"
                ) from None
            raise TooFewSites(f"the survey: {error}") from None
        finally:
            entry = self.journal.entry(wanted.subject)
            self.report.answered = entry.survivors
            self.report.missing = {
                site: self.report.missing.get(site, "not in the sum")
                for site in sorted(wanted.cohort)
                if site not in entry.survivors
            }
            self.report.attempt = entry.attempt
            self.report.seconds = time.perf_counter() - began

    def _vector(self, wanted: WantedSum) -> Tensor:
        before = self.journal.entry(wanted.subject)
        among = before.survivors or tuple(sorted(wanted.cohort))
        if before.survivors and before.of == wanted.source:
            if before.sums is not None:
                return self.journal.sum_of(wanted.subject)
            if wanted.summed == TRAIN:
                raise LostSum("the server stopped while the sum was unmasked")
        aborted = ""
        for _ in range(MAX_ATTEMPTS):
            try:
                return self._attempt(wanted, among)
            except SumAborted as error:
                aborted = str(error)
                log.warning("%s", aborted)
                self._audit_log.record("aborted", sum=wanted.subject, reason=aborted)
        missing = self.report.missing
        named = "; ".join(f"{site}: {reason}" for site, reason in sorted(missing.items()))
        raise TooFewSites(f"{wanted.title}: {aborted}" + (f"; missing: {named}" if named else ""))

    def _attempt(self, wanted: WantedSum, among: Sequence[str]) -> Tensor:
        study, subject = self._study, wanted.subject
        cohort = tuple(sorted(wanted.cohort))
        attempt = Attempt(study.hash, subject, self.journal.next_attempt(subject), cohort)
        public, half = signers(study), SecureSum(attempt, vector_length(wanted.expected))
        self.report.missing = {}

        def take_keys(site: str, message: Message) -> None:
            keys = keys_in(sum_facts(message.facts).get("keys"))
            keys.check(attempt, site, public[site])
            half.add_keys(site, keys)

        def take_shares(site: str, message: Message) -> None:
            half.add_shares(site, texts_in(sum_facts(message.facts).get("shares")))

        def take_vector(site: str, message: Message) -> None:
            vector = message.tree.get(MASKED)
            if not isinstance(vector, Tensor):
                raise ValueError("the reply has no masked vector")
            half.add_vector(site, vector)

        def take_unmasking(site: str, message: Message) -> None:
            half.add_unmasking(site, texts_in(sum_facts(message.facts).get("shares")))

        self._step(wanted, attempt, KEYS, {}, among, take_keys)
        half.require(len(half.keys), "sent keys")
        told: dict[str, Any] = {"keys": {site: keys_fact(keys) for site, keys in half.keys.items()}}
        self._step(wanted, attempt, SHARES, told, sorted(half.keys), take_shares)
        half.require(len(half.senders), "sent shares")
        told = {"inboxes": {site: texts_fact(half.inbox(site)) for site in half.senders}}
        self._step(wanted, attempt, wanted.summed, told, half.senders, take_vector)
        half.require(len(half.survivors), "sent a masked vector")
        self._require_contributors(wanted, half.survivors)
        self.journal.begin_unmasking(subject, wanted.source, half.survivors)
        facts = {"survivors": list(half.survivors), "contributed": self.journal.contributed}
        self._step(wanted, attempt, UNMASK, facts, half.survivors, take_unmasking)
        try:
            vector = half.unmasked()
        except SumAborted as error:
            raise LostSum(f"{error}; {self._reasons()}") from None
        self.journal.keep_sum(subject, vector)
        self._audit_log.record(
            "unmasked",
            sum=subject,
            attempt=attempt.number,
            survivors=list(half.survivors),
            hash=survivors_hash(half.survivors),
        )
        return vector

    def _require_contributors(self, wanted: WantedSum, survivors: Sequence[str]) -> None:
        """Raise SumAborted if sites would refuse to unmask the sum over these."""
        before = self.journal.entry(wanted.subject).survivors
        if before and before != tuple(survivors):
            raise SumAborted(
                f"{wanted.subject} was unmasked over {', '.join(before)}, and can be found again "
                "over the same sites only"
            )
        if self._study.sum_terms.allows_few:
            return
        thin = self._study.sum_terms.thin_classes(survivors, FEWEST, self.journal.contributed)
        if thin:
            raise SumAborted(
                f"{wanted.subject}: fewer than {FEWEST} annotators of {', '.join(thin)} are left"
            )

    def _step(
        self,
        wanted: WantedSum,
        attempt: Attempt,
        kind: str,
        facts: Mapping[str, Any],
        among: Sequence[str],
        take: Callable[[str, Message], None],
    ) -> None:
        rules, quorum = self._study.rules, Quorum(self._study, wanted.cohort)
        is_vector = kind == wanted.summed
        step = SumStep(
            self._study,
            self._audit_log,
            self.report,
            kind,
            wanted.round_index,
            attempt.number,
            take,
            SPARE_BYTES + (8 * vector_length(wanted.expected) if is_vector else 0),
        )
        limits = WaitLimits(
            seconds=rules.round_seconds if kind == TRAIN else rules.start_seconds,
            # The shares of some sites are enough: the sum is the same with more of them.
            late_seconds=0.0 if kind == UNMASK else rules.late_seconds,
            is_enough=lambda: (
                len(step.answered) >= attempt.threshold
                if kind == UNMASK
                else quorum.is_enough(step.answered)
            ),
        )
        told = {SUM: {**attempt_facts(wanted.summed, attempt), **facts}}
        step.ask(self._channel, wanted.requests(kind, told, among), limits)

    def _checked(self, wanted: WantedSum, vector: Tensor) -> Totals:
        """Return the totals, or raise AbsurdSum."""
        survivors, expected = self.journal.entry(wanted.subject).survivors, wanted.expected
        sums = from_vector(vector, expected)
        if wanted.summed == SURVEY:
            check_survey_sums(survivors, sums, wanted.scales)
        else:
            check_round_sums(
                self._study, wanted.round_index, survivors, expected, sums, wanted.scales
            )
        size = vector.nbytes * len(survivors)
        population = len(self._study.sites)
        return Totals.of_integers(survivors, population, expected, sums, wanted.scales, size)

    def _reasons(self) -> str:
        return "; ".join(f"{site}: {why}" for site, why in sorted(self.report.missing.items()))
