"""SiteNoise: noise on what a site sends, what it may still cost, and the ledger of all of it.

The noise is drawn from the system's entropy: whoever knows a recipe's seed could subtract it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedquilt.core.atomic_files import write_bytes
from fedquilt.core.noise import Draws
from fedquilt.core.payload import Update
from fedquilt.data.client_data import ClientData
from fedquilt.deploy.audit_log import AuditLog
from fedquilt.deploy.protocol.message_bounds import BadMessage
from fedquilt.deploy.protocol.messages import pack, unpack, update_message, update_of
from fedquilt.deploy.site.answers import RefusedRequest
from fedquilt.deploy.study import Study
from fedquilt.privacy.ledger import Charge, PrivacyLedger
from fedquilt.privacy.noisy_parts import SURVEY, released_now, with_noisy_parts
from fedquilt.training.method import Method
from fedquilt.training.noise_plan import part_noise, private_steps, training_noise
from fedquilt.training.task import Task

log = logging.getLogger(__name__)

ROUNDING = 1e-6  # relative: a budget is spent to its last digit


@dataclass(frozen=True)
class Budget:
    """What noise may cost a site: in this study, and by its policy in all studies together."""

    study: Study
    ledger: PrivacyLedger
    max_epsilon: float | None
    earlier: Collection[str] = ()  # hashes of the study before sites joined it

    def spent(self, more: Sequence[Charge] = (), *, by_all: bool = False) -> float:
        privacy = self.study.recipe.privacy
        names = None if by_all else {self.study.hash, *self.earlier}
        return self.ledger.spent(privacy.delta, privacy.unit, names, more)

    def why_not(self, charges: Sequence[Charge]) -> str | None:
        """Return why further charges cannot be paid, or None if they can."""
        agreed = self.study.recipe.privacy.epsilon
        if agreed is None:
            return None
        if self.spent(charges) > agreed * (1 + ROUNDING):
            return (
                f"this site has spent epsilon {self.spent():.4g} of the {agreed:g} that the study "
                "agreed on, and the next round would cost more than is left"
            )
        limit = self.max_epsilon
        if limit is not None and self.spent(charges, by_all=True) > limit * (1 + ROUNDING):
            return (
                f"this site has spent epsilon {self.spent(by_all=True):.4g} in all studies, and "
                f"the next round would exceed its policy (max_epsilon = {limit:g})"
            )
        return None


class SiteNoise:
    """The noise of one site in one study.

    A noised answer is kept: asked for the same again, the site repeats it, which costs nothing.
    """

    def __init__(
        self,
        task: Task,
        data: ClientData,
        budget: Budget,
        folder: Path,
        audit_log: AuditLog,
        draws: Draws,
    ) -> None:
        self._draws, self._audit_log = draws, audit_log
        self._method, self._task, self._data = budget.study.recipe.method, task, data
        self._budget, self._folder = budget, folder

    def answer(
        self,
        kind: str,
        round_index: int,
        asked: str,
        make: Callable[[], Update],
        release: Callable[[Update], Update],
    ) -> Update:
        """Return what leaves: ``release`` of the noised update that ``make`` computes.

        It is in the ledger before it is returned. Raise RefusedRequest if training cannot be paid;
        small parts then rest instead.
        """
        path, question = self._folder / f"noised-{kind}.msg", f"{round_index} {asked}"
        again = self._kept(path, question)
        if again is not None:
            return again
        private = self._private_charges(round_index, ())
        self._require(private)
        parts = self._part_charges(round_index)
        spent = self._budget.why_not(parts)
        pays = spent is None
        if not pays:
            self._record("rested", round_index, reason=spent)
        noised = with_noisy_parts(
            self._method,
            self._task,
            self._data,
            make(),
            round_index,
            self._draws,
            may_release=pays,
        )
        update = release(noised)
        if self._task.privacy.training and round_index != SURVEY:
            charges = self._private_charges(round_index, sorted(update))
        else:
            rest = [name for name in update if name not in self._task.privacy.parts]
            charges = [*(parts if pays else ()), self.open_charge(rest, round_index)]
        self._budget.ledger.charge(charges, lambda: self._require(charges))
        if self._task.privacy.adds_noise:
            self._record("charged", round_index, epsilon=round(self._budget.spent(), 4))
            write_bytes(path, pack(update_message({"asked": question}, update)))
        return update

    def _record(self, event: str, round_index: int, **facts: object) -> None:
        study = self._budget.study.hash
        self._audit_log.record(event, study=study, round=round_index, **facts)

    def note(self, update: Update, round_index: int) -> None:
        """Write into the ledger what leaves without noise."""
        if update:
            self._budget.ledger.charge([self.open_charge(update, round_index)])

    def open_charge(self, parts: Collection[str], round_index: int) -> Charge:
        unit = self._task.privacy.unit
        return Charge(self._budget.study.hash, round_index, tuple(sorted(parts)), unit)

    def _require(self, charges: Sequence[Charge]) -> None:
        why = self._budget.why_not(charges)
        if why is not None:
            raise RefusedRequest(why)

    def _private_charges(self, round_index: int, parts: Collection[str]) -> list[Charge]:
        if not self._task.privacy.training or round_index == SURVEY:
            return []
        noise = training_noise(self._method, self._task, len(self._data))
        return [
            Charge(
                self._budget.study.hash,
                round_index,
                tuple(parts),
                self._task.privacy.unit,
                noise.noise_multiplier,
                noise.sampling_rate,
                private_steps(self._method, round_index, len(self._data)),
            )
        ]

    def _part_charges(self, round_index: int) -> list[Charge]:
        now = released_now(self._method, self._task, round_index)
        if not now:
            return []
        noise, privacy = part_noise(self._method, self._task), self._task.privacy
        return [
            Charge(
                self._budget.study.hash,
                round_index,
                tuple(now),
                privacy.unit,
                noise.noise_multiplier,
                releases=len(now),
            )
        ]

    def _kept(self, path: Path, question: str) -> Update | None:
        if not self._task.privacy.adds_noise or not path.exists():
            return None
        try:
            message = unpack(path.read_bytes())
            return update_of(message) if message.facts.get("asked") == question else None
        except BadMessage as error:
            log.warning("%s is damaged (%s); the noise is drawn and paid again", path.name, error)
            return None


def planned_charges(method: Method, task: Task, study: str, images: int) -> list[Charge]:
    """Return what all rounds of a study would cost a site with so many images."""
    privacy = task.privacy
    if privacy.training:
        noise = training_noise(method, task, images)
        steps = sum(private_steps(method, index, images) for index in range(task.round_count))
        given = (noise.noise_multiplier, noise.sampling_rate, steps)
        return [Charge(study, 0, (), privacy.unit, *given)]
    counts = [
        len(released_now(method, task, index)) for index in (SURVEY, *range(task.round_count))
    ]
    if not privacy.parts or not sum(counts):
        return []
    multiplier = part_noise(method, task).noise_multiplier
    return [Charge(study, 0, privacy.parts, privacy.unit, multiplier, releases=sum(counts))]
