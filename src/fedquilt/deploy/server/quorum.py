"""Who has to answer for a round to count, and who is missing when it does not."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from fedquilt.core.errors import UserError
from fedquilt.deploy.study import Study


class TooFewSites(UserError):
    """A round that could not be had; nothing of it was kept."""


@dataclass(frozen=True)
class Quorum:
    """The rule for one cohort: a quorum, and an annotator of every class the cohort annotates."""

    study: Study
    cohort: Sequence[str]

    @property
    def quorum(self) -> int:
        return min(self.study.rules.quorum, len(self.cohort))

    def is_enough(self, answered: Collection[str]) -> bool:
        return len(answered) >= self.quorum and not self.orphans(answered)

    def orphans(self, answered: Collection[str]) -> list[str]:
        """Classes that somebody in the cohort annotates and nobody who answered."""
        wanted = self._annotated(self.cohort)
        had = self._annotated(answered)
        return [name for name in self.study.classes if name in wanted - had]

    def require(self, answered: Collection[str], reasons: Mapping[str, str], what: str) -> None:
        """Raise TooFewSites, naming who is missing and why, unless it is enough."""
        if self.is_enough(answered):
            return
        missing = [
            f"{name} ({reasons.get(name, 'no answer')})"
            for name in self.cohort
            if name not in answered
        ]
        orphans = self.orphans(answered)
        unlearnt = f"; nobody who did annotates {', '.join(orphans)}" if orphans else ""
        raise TooFewSites(
            f"{what}: {len(answered)} of {len(self.cohort)} sites answered, at least {self.quorum} "
            f"are needed{unlearnt}; missing: {', '.join(missing)}"
        )

    def _annotated(self, names: Collection[str]) -> set[str]:
        return {each for name in names for each in self.study.site(name).annotates}
