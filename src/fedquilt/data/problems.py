"""Problems found in a user's files: collected, then reported together with advice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fedquilt.core.errors import UserError
from fedquilt.core.wording import counted

SHOWN_PLACES = 5  # places of one kind that a message lists
KEPT_PLACES = 20  # places of one kind kept for the JSON report; all are counted


@dataclass(frozen=True)
class Kind:
    """A kind of problem."""

    name: str  # identifier in the JSON report
    found: str  # what is wrong, for people
    advice: str  # what was expected and what to do
    shown: int = SHOWN_PLACES


@dataclass(frozen=True)
class Place:
    """Where a problem was found; ``private`` may name a patient and is kept out of logs."""

    where: str
    private: str = ""

    def text(self, *, private: bool) -> str:
        return f"{self.where}: {self.private}" if private and self.private else self.where


@dataclass(frozen=True)
class Problem:
    """All places with one kind of problem."""

    kind: Kind
    scope: str  # e.g. the column: each scope is counted and listed separately
    count: int
    places: tuple[Place, ...]

    @property
    def title(self) -> str:
        return f"{self.kind.found} in {self.scope}" if self.scope else self.kind.found

    def lines(self, *, private: bool) -> list[str]:
        """The first places, and the number of further ones."""
        shown = [place.text(private=private) for place in self.places[: self.kind.shown]]
        rest = self.count - len(shown)
        return shown + ([f"... and {rest:,} more"] if rest else [])

    def to_dict(self) -> dict[str, object]:
        return {
            "kind": self.kind.name,
            "found": self.title,
            "count": self.count,
            "places": [place.text(private=True) for place in self.places],
            "advice": self.kind.advice,
        }


@dataclass
class Problems:
    """Collects problems in bounded memory."""

    _places: dict[tuple[Kind, str], list[Place]] = field(default_factory=dict)
    _counts: dict[tuple[Kind, str], int] = field(default_factory=dict)

    def add(self, kind: Kind, where: str, *, private: str = "", scope: str = "") -> None:
        key = (kind, scope)
        self._counts[key] = self._counts.get(key, 0) + 1
        kept = self._places.setdefault(key, [])
        if len(kept) < KEPT_PLACES:
            kept.append(Place(where, private))

    def __iter__(self) -> Iterator[Problem]:
        for (kind, scope), count in self._counts.items():
            yield Problem(kind, scope, count, tuple(self._places[kind, scope]))

    def __bool__(self) -> bool:
        return bool(self._counts)

    def error(self, subject: str) -> UserError:
        """One error with all problems, without image names and patients."""
        lines = [f"{subject}: {counted(sum(self._counts.values()), 'problem')}; nothing was loaded"]
        for problem in self:
            lines.append(f"- {problem.title} ({problem.count:,})")
            lines += [f"    {line}" for line in problem.lines(private=False)]
            lines.append(f"    {problem.kind.advice}")
        lines.append("'fedquilt data check' lists them with the image names, on your screen only")
        return UserError("\n".join(lines))
