"""Replies: checks the replies of one exchange as they arrive, and sums the accepted updates.

ExchangeReport has the facts of an exchange that go into the history and the status.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from fedquilt.core.bounds import RoundBounds
from fedquilt.core.compact_payload import decoded_update
from fedquilt.core.fixed_point import Scales
from fedquilt.core.payload import Update
from fedquilt.core.robust import RobustRound
from fedquilt.core.shown_text import shown
from fedquilt.core.totals import Accumulator
from fedquilt.core.update_checks import RefusedUpdate
from fedquilt.deploy.audit_log import AuditLog, part_sizes
from fedquilt.deploy.protocol.message_bounds import BadMessage
from fedquilt.deploy.protocol.messages import SURVEY, TRAIN, unpack, update_of
from fedquilt.deploy.server.declared_images import DeclaredImages, check_survey_counts
from fedquilt.deploy.server.reply_checks import (
    SiteFailed,
    check_records,
    check_reply_facts,
    check_reply_size,
)
from fedquilt.deploy.server.unannotated_rows import check_rows
from fedquilt.deploy.study import Study

Check: TypeAlias = Callable[[str, Update], None]  # raises RefusedUpdate for a site's update

log = logging.getLogger(__name__)


@dataclass
class ExchangeReport:
    """Who answered, who did not and why, and what went over the network."""

    answered: tuple[str, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)  # site -> why it was not counted
    bytes_down: int = 0
    bytes_up: int = 0
    seconds: float = 0.0
    attempt: int | None = None  # of a secure sum


@dataclass
class Replies:
    """The replies received so far; a reply is counted as a whole or refused."""

    study: Study
    kind: str  # of the request
    round_index: int
    audit_log: AuditLog
    expected: Update  # with the names, kinds, shapes and dtypes that replies must have
    images: DeclaredImages
    bounds: RoundBounds | None = None
    scales: Scales | None = None
    rule: RobustRound | None = None
    check: Check | None = None  # in place of the checks of what is trained
    accumulator: Accumulator = field(init=False)
    answered: list[str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)  # site -> why its reply was not counted
    byte_count: int = 0
    fault: Exception | None = None

    def __post_init__(self) -> None:
        check = self._check_rows if self.check is None else self.check
        self.accumulator = Accumulator(
            self.expected,
            len(self.study.sites),
            check,
            self.bounds,
            self.scales,
            self.rule,
        )

    def receive(self, site: str, reply: bytes) -> None:
        """Count a site's reply, or record why not; never raises.

        What cannot be recorded is kept in ``fault``: the exchange then does not count.
        """
        try:
            self._receive(site, reply)
        except OSError as error:  # of the audit log, such as a full disk
            log.exception("the reply of %s cannot be recorded", shown(site))
            self.fault = self.fault or error

    def _receive(self, site: str, reply: bytes) -> None:
        self.byte_count += len(reply)
        facts = {"site": site, "kind": self.kind, "round": self.round_index, "bytes": len(reply)}
        try:
            update = self._update_in(site, reply)
            self._add(site, update)
        except (BadMessage, RefusedUpdate) as error:
            self._reject("refused", site, facts, f"refused: {error}")
        except SiteFailed as error:
            self._reject("failed", site, facts, str(error))
        except Exception as error:
            # A check that was not foreseen must not cost the others' round.
            log.exception("the reply of %s cannot be checked", shown(site))
            if self.accumulator.is_torn:
                self.fault = error
            self._reject("refused", site, facts, f"refused: {type(error).__name__} in its checks")
        else:
            self.answered.append(site)
            self.reasons.pop(site, None)
            self.audit_log.record("received", **facts, parts=part_sizes(update))

    def settle(self) -> None:
        """Judge the updates that had to wait for the others of the round."""
        for site, reason in self.accumulator.settle().items():
            if site in self.answered:
                self.answered.remove(site)
                facts = {"site": site, "kind": self.kind, "round": self.round_index}
                self._reject("refused", site, facts, f"refused: {reason}")

    def report(self, silent: Mapping[str, str], bytes_down: int, seconds: float) -> ExchangeReport:
        """Return what came of the exchange; ``silent`` sites did not reply, each with a reason."""
        missing = {**silent, **self.reasons}
        return ExchangeReport(
            answered=tuple(self.answered),
            missing={name: missing[name] for name in sorted(missing)},
            bytes_down=bytes_down,
            bytes_up=self.byte_count,
            seconds=seconds,
        )

    def _reject(self, event: str, site: str, facts: Mapping[str, Any], reason: str) -> None:
        reason = shown(reason)  # it may quote the reply
        log.warning("site %s, round %s: %s", site, self.round_index, reason)
        if site not in self.answered:
            self.reasons[site] = reason
        self.audit_log.record(event, **facts, reason=reason)

    def _update_in(self, site: str, reply: bytes) -> Update:
        check_reply_size(len(reply), self.expected, self.study.rules)
        message = unpack(reply)
        check_reply_facts(message, self.study.hash, site, self.kind, self.round_index)
        if self.kind in (SURVEY, TRAIN):
            self.images.declare(site, message.facts.get("images"))
        update, options = update_of(message), self.study.recipe.payload
        if self.kind == TRAIN and options.is_lossy:
            return decoded_update(update, self.expected, options)
        return update

    def _add(self, site: str, update: Update) -> None:
        if site not in self.study.site_names:
            raise RefusedUpdate(f"{site!r} is not a site of the study")
        self.accumulator.add(site, update)

    def _check_rows(self, site: str, update: Update) -> None:
        check_records(update, site, self.study.rules, self.images.of(site))
        check_rows(self.study, update, site)
        if self.kind == SURVEY:
            check_survey_counts(update, site, self.images.of(site))
