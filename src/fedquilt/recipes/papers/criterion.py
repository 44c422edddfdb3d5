"""Criteria: when a reproduced table counts as a success, with the verdict in words."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

# The criterion's metric: row -> column -> mean over seeds in percent, for rivals that have run.
Means = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Verdict:
    """The outcome of a criterion."""

    holds: bool | None  # None if too few cells have run
    found: str  # a sentence with the numbers


@dataclass(frozen=True, kw_only=True)
class Criterion(ABC):
    """A condition on the paper's own method."""

    row: str  # the paper's method
    metric: str  # as named in result.json

    @abstractmethod
    def words(self, labels: Mapping[str, str]) -> str:
        """Return the condition in words; ``labels`` are the printed names of rows and metrics."""

    @abstractmethod
    def judge(self, means: Means, labels: Mapping[str, str]) -> Verdict: ...


@dataclass(frozen=True, kw_only=True)
class AmongBest(Criterion):
    """The method is among the best ``places`` by its mean over the columns it ran in.

    If only ``places`` methods or fewer ran, the method must not be the last of them. Otherwise the
    criterion could not fail.
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
            return Verdict(None, f"{needed} have not both run in the same columns yet")
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
    """The method is above each of ``others`` in every column that ran."""

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
            return Verdict(None, f"{needed} have not all run in the same columns yet")
        listed = ", ".join(
            f"{gain:+.1f} over {labels[other]} in {labels[column]}"
            for (other, column), gain in gains.items()
        )
        holds = min(gains.values()) > 0
        return Verdict(holds, f"{labels[self.row]} differs by {listed}")
