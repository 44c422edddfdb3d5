"""Quorum: which sites have to answer for a round to count."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from fedquilt.core.errors import UserError
from fedquilt.deploy.secure.terms import FEWEST, fewest_of
from fedquilt.deploy.study import Study


class TooFewSites(UserError):
    """Raised when the replies of a round make no quorum; nothing of the round is kept."""


@dataclass(frozen=True)
class Quorum:
    """Enough sites of a cohort, with an annotator of every class that the cohort annotates.

    Of a secure sum: enough to unmask it, with several annotators of a class or with none.
    """

    study: Study
    cohort: Sequence[str]

    @property
    def minimum(self) -> int:
        agreed = min(self.study.rules.quorum, len(self.cohort))
        return max(agreed, fewest_of(len(self.cohort))) if self.study.is_secure else agreed

    def is_enough(self, answered: Collection[str]) -> bool:
        return len(answered) >= self.minimum and not self.missed_classes(answered)

    def missed_classes(self, answered: Collection[str]) -> list[str]:
        """Return the classes with too few annotators among the sites that answered."""
        if not self.study.is_secure:
            return self.uncovered_classes(answered)
        return (
            [] if self.study.sum_terms.allows_few else self.study.sum_terms.thin_classes(answered)
        )

    def uncovered_classes(self, answered: Collection[str]) -> list[str]:
        """Return the classes annotated in the cohort, but by none of the sites that answered."""
        uncovered = self._annotated(self.cohort) - self._annotated(answered)
        return [name for name in self.study.classes if name in uncovered]

    def require(self, answered: Collection[str], reasons: Mapping[str, str], what: str) -> None:
        """Raise TooFewSites, with the missing sites and reasons, unless there is a quorum."""
        if self.is_enough(answered):
            return
        missing = [
            f"{name} ({reasons.get(name, 'no answer')})"
            for name in self.cohort
            if name not in answered
        ]
        classes, few = ", ".join(self.missed_classes(answered)), "none of those annotates"
        if self.study.is_secure:
            few = f"fewer than {FEWEST} of those annotate"
        uncovered = f"; {few} {classes}" if classes else ""
        raise TooFewSites(
            f"{what}: {len(answered)} of {len(self.cohort)} sites answered, at least "
            f"{self.minimum} are needed{uncovered}; missing: {', '.join(missing)}"
        )

    def _annotated(self, names: Collection[str]) -> set[str]:
        return {each for name in names for each in self.study.site(name).annotates}
