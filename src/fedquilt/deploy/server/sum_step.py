"""SumStep: one request of a secure sum to several sites, and what they answer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fedquilt.core.shown_text import shown
from fedquilt.deploy.audit_log import AuditLog
from fedquilt.deploy.protocol.channel import Channel, WaitLimits
from fedquilt.deploy.protocol.messages import Message, unpack
from fedquilt.deploy.secure.facts import sum_facts
from fedquilt.deploy.server.replies import ExchangeReport
from fedquilt.deploy.server.reply_checks import SiteFailed, check_reply_facts
from fedquilt.deploy.study import Study

log = logging.getLogger(__name__)

SPARE_BYTES = 2**20  # of a reply, for its header


@dataclass
class SumStep:
    """Takes each site's reply as it arrives; one that is refused costs only that site."""

    study: Study
    audit_log: AuditLog
    report: ExchangeReport
    kind: str
    round_index: int
    attempt: int
    take: Callable[[str, Message], None]  # raises ValueError for a reply that cannot be right
    largest_reply: int = SPARE_BYTES
    answered: list[str] = field(default_factory=list)
    _fault: Exception | None = None

    def ask(self, channel: Channel, requests: Mapping[str, bytes], limits: WaitLimits) -> None:
        """Send the requests and take the replies; the report says who is missing, and why."""
        for site, request in requests.items():
            self._record("sent", site, len(request))
        self.report.bytes_down += sum(map(len, requests.values()))
        silent = channel.ask(requests, self.receive, limits)
        if self._fault is not None:
            raise self._fault
        for site, reason in silent.items():
            if site not in self.answered:
                self.report.missing.setdefault(site, reason)

    def receive(self, site: str, reply: bytes) -> None:
        """Take a site's reply, or note why not; never raises."""
        try:
            self._receive(site, reply)
        except OSError as error:  # of the audit log, such as a full disk
            log.exception("the reply of %s cannot be recorded", shown(site))
            self._fault = self._fault or error

    def _receive(self, site: str, reply: bytes) -> None:
        self.report.bytes_up += len(reply)
        try:
            if site in self.answered:
                raise ValueError("it has answered already")
            if len(reply) > self.largest_reply:
                raise ValueError(f"the reply has {len(reply)} bytes")
            message = unpack(reply)
            check_reply_facts(message, self.study.hash, site, self.kind, self.round_index)
            if sum_facts(message.facts).get("attempt") != self.attempt:
                raise ValueError("the reply belongs to another attempt")
            self.take(site, message)
        except SiteFailed as error:
            self._reject("failed", site, str(error))
        except ValueError as error:
            self._reject("refused", site, f"refused: {error}")
        except Exception as error:  # a check that was not foreseen must not cost the others' sum
            log.exception("the reply of %s cannot be checked", shown(site))
            self._reject("refused", site, f"refused: {type(error).__name__} in its checks")
        else:
            self.answered.append(site)
            self._record("received", site, len(reply))

    def _reject(self, event: str, site: str, reason: str) -> None:
        reason = shown(reason)  # it may quote the reply
        log.warning("site %s, %s: %s", site, self.kind, reason)
        if site not in self.answered:
            self.report.missing[site] = reason
        self._record(event, site, None, reason=reason)

    def _record(self, event: str, site: str, size: int | None, **facts: object) -> None:
        told = {} if size is None else {"bytes": size}
        self.audit_log.record(
            event,
            site=site,
            kind=self.kind,
            round=self.round_index,
            attempt=self.attempt,
            **told,
            **facts,
        )
