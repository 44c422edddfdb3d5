"""The sites that still take part: those excluded, or gone by their own will, are not asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from fedquilt.core.errors import UserError
from fedquilt.deploy.audit_log import AuditLog
from fedquilt.deploy.protocol.channel import Channel, WaitLimits
from fedquilt.deploy.study import Study
from fedquilt.training.task import Task


class RemainingSites:
    """A channel to the remaining sites; what another one still sends is refused and logged.

    ``departed`` is asked again for every reply: a site may be excluded while it trains.
    """

    def __init__(
        self, channel: Channel, departed: Callable[[], Mapping[str, str]], audit_log: AuditLog
    ) -> None:
        self._channel, self._departed, self._audit_log = channel, departed, audit_log

    def ask(
        self,
        requests: Mapping[str, bytes],
        on_reply: Callable[[str, bytes], None],
        limits: WaitLimits,
    ) -> Mapping[str, str]:
        gone = dict(self._departed())

        def receive(site: str, reply: bytes) -> None:
            why = self._departed().get(site)
            if why is None:
                on_reply(site, reply)
                return
            gone[site] = why
            self._audit_log.record("refused", site=site, bytes=len(reply), reason=why)

        asked = {site: request for site, request in requests.items() if site not in gone}
        silent = self._channel.ask(asked, receive, limits)
        return {**silent, **{site: why for site, why in gone.items() if site in requests}}


def remaining_task(study: Study, departed: Mapping[str, str]) -> Task:
    """Return the task whose cohorts are drawn from the remaining sites.

    With secure sums the cohort stays: sites have agreed on whose masks cancel, and one that is gone
    counts as lost in every round.
    """
    if study.is_secure:
        return study.task
    return replace(study.task, clients=_remaining(study, departed))


def require_quorum(study: Study, departed: Mapping[str, str]) -> None:
    """Raise UserError if so many sites have gone that no round can count."""
    left = _remaining(study, departed)
    if len(left) < study.rules.quorum:
        raise UserError(
            f"{len(left)} of {len(study.sites)} sites are left ({', '.join(left) or 'none'}), and "
            f"the study's quorum is {study.rules.quorum}; stop the study, or lower rules.quorum"
        )


def _remaining(study: Study, departed: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(name for name in study.site_names if name not in departed)
