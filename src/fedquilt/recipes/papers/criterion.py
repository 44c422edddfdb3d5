"""Criteria: what must hold of a reproduced table for the command to succeed, said in words."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

# row -> column -> percent: of the criterion's metric, the mean over seeds, of rivals that have run
Means = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Verdict:
    """``holds`` is None where too few cells have run to tell."""

    holds: bool | None
    found: str  # a sentence with the numbers


@dataclass(frozen=True, kw_only=True)
class Criterion(ABC):
    row: str  # the method that the paper is about
    metric: str  # in result.json

    @abstractmethod
    def words(self, labels: Mapping[str, str]) -> str:
        """What must hold; ``labels`` are the names of rows and metrics as the paper prints them."""

    @abstractmethod
    def judge(self, means: Means, labels: Mapping[str, str]) -> Verdict: ...


@dataclass(frozen=True, kw_only=True)
class AmongBest(Criterion):
    """The method is among the best rivals by its mean over the columns that it ran in.

    Where no more rivals ran than there are good places, one place fewer counts as good: a
    criterion that cannot fail says nothing.
    """

    places: int = 2

    def words(self, labels: Mapping[str, str]) -> str:
        places = "the best" if self.places == 1 else f"among the best {self.places}"
        return f"{labels[self.row]} is {places} by average {labels[self.metric]}"

    def judge(self, means: Means, labels: Mapping[str, str]) -> Verdict:
        columns = set(means.get(self.row, {}))
        averages = {
            row: sum(values[column] for column in columns) / len(columns)
            for row, values in means.items()
            if columns and columns <= set(values)
        }
        if len(averages) < 2:
            needed = f"{labels[self.row]} and another method"
            return Verdict(None, f"{needed} have not both run in the same columns")
        own = averages.pop(self.row)
        rank = 1 + sum(other > own for other in averages.values())
        best = max(averages, key=averages.__getitem__)
        found = (
            f"{labels[self.row]} is number {rank} of {len(averages) + 1} with {own:.1f}; the best "
            f"other is {labels[best]} with {averages[best]:.1f}"
        )
        return Verdict(rank <= min(self.places, len(averages)), found)


@dataclass(frozen=True, kw_only=True)
class Above(Criterion):
    """The method is above others, each of them, in every column that ran."""

    others: tuple[str, ...]

    def words(self, labels: Mapping[str, str]) -> str:
        others = " and ".join(labels[other] for other in self.others)
        metric = labels[self.metric]
        return f"{labels[self.row]}'s {metric} is above that of {others} in every column"

    def judge(self, means: Means, labels: Mapping[str, str]) -> Verdict:
        own = means.get(self.row, {})
        gains = {
            (other, column): own[column] - means[other][column]
            for other in self.others
            for column in own
            if column in means.get(other, {})
        }
        if {other for other, _ in gains} != set(self.others):
            needed = " and ".join(labels[row] for row in (self.row, *self.others))
            return Verdict(None, f"{needed} have not all run in the same columns")
        listed = ", ".join(
            f"{gain:+.1f} over {labels[other]} in {labels[column]}"
            for (other, column), gain in gains.items()
        )
        holds = min(gains.values()) > 0
        return Verdict(holds, f"{labels[self.row]} differs by {listed}")
