"""Criteria: when a reproduced table counts as a success, with the verdict in words."""

from __future__ import annotations

import statistics
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from fedquilt.core.wording import counted

# Rivals that have run: metric -> row -> column -> seed -> percent
Runs = Mapping[str, Mapping[str, Mapping[str, Mapping[int, float]]]]


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
    def judge(self, runs: Runs, labels: Mapping[str, str]) -> Verdict: ...

    def leads(self, runs: Runs, metric: str) -> dict[str, list[float]]:
        """How far the method is ahead of every other row, per seed that both have.

        A lead is the mean over the columns that the method ran in. Rows that lack one of them, or
        have no seed in common with the method, are left out.
        """
        rows = runs.get(metric, {})
        own = rows.get(self.row, {})
        found: dict[str, list[float]] = {}
        for row, columns in rows.items():
            if row == self.row or not own or not set(own) <= set(columns):
                continue
            seeds = set.intersection(*(set(own[each]) & set(columns[each]) for each in own))
            if seeds:
                found[row] = [
                    statistics.fmean(own[each][seed] - columns[each][seed] for each in own)
                    for seed in sorted(seeds)
                ]
        return found


def smallest_lead(leads: Mapping[str, list[float]]) -> tuple[str, list[float]]:
    """Return the best other row, and how far the method is ahead of it."""
    best = min(leads, key=lambda row: statistics.fmean(leads[row]))
    return best, leads[best]


@dataclass(frozen=True, kw_only=True)
class AmongBest(Criterion):
    """The method is among the best ``places``, by the mean leads over the columns it ran in.

    The words tell the lead over the best other row with its interval over seeds. If only
    ``places`` methods or fewer ran, the method must not be the last of them. Otherwise the
    criterion could not fail.
    """

    places: int = 2

    def words(self, labels: Mapping[str, str]) -> str:
        places = "the best" if self.places == 1 else f"among the best {self.places}"
        return f"{labels[self.row]} is {places} by average {labels[self.metric]}"

    def judge(self, runs: Runs, labels: Mapping[str, str]) -> Verdict:
        leads = self.leads(runs, self.metric)
        if not leads:
            needed = f"{labels[self.row]} and another method"
            return Verdict(None, f"{needed} have not both run with the same columns and seeds yet")
        own = runs[self.metric][self.row].values()
        mean = statistics.fmean(statistics.fmean(seeds.values()) for seeds in own)
        rank = 1 + sum(statistics.fmean(each) < 0 for each in leads.values())
        best, lead = smallest_lead(leads)
        found = (
            f"{labels[self.row]} is number {rank} of {len(leads) + 1} with {mean:.1f}: "
            f"{_told(lead)} against the best other, {labels[best]}"
        )
        return Verdict(rank <= min(self.places, len(leads)), found)


@dataclass(frozen=True, kw_only=True)
class AheadOfSecond(Criterion):
    """The method is ahead of the best other by several metrics, with the lead's uncertainty.

    A lead is the mean over the columns that both ran in, seed by seed; its interval is Student's
    over the seeds. The verdict goes by the mean leads; the words say which intervals reach 0.
    """

    also: tuple[str, ...]  # further metrics

    def words(self, labels: Mapping[str, str]) -> str:
        metrics = " and ".join(labels[metric] for metric in (self.metric, *self.also))
        return f"{labels[self.row]} is ahead of the best other method by average {metrics}"

    def judge(self, runs: Runs, labels: Mapping[str, str]) -> Verdict:
        leads = {metric: self.leads(runs, metric) for metric in (self.metric, *self.also)}
        if not all(leads.values()):
            needed = f"{labels[self.row]} and another method"
            return Verdict(None, f"{needed} have not both run with the same columns and seeds yet")
        best = {metric: smallest_lead(found) for metric, found in leads.items()}
        told = [
            f"{labels[metric]} {_told(lead)} over {labels[row]}"
            for metric, (row, lead) in best.items()
        ]
        holds = all(statistics.fmean(lead) > 0 for _, lead in best.values())
        return Verdict(holds, "; ".join(told))


def _told(differences: list[float]) -> str:
    """The mean difference with its 95 % interval over seeds."""
    from fedquilt.metrics.across_seeds import seed_difference  # scipy is slow to import

    found = seed_difference(differences)
    if len(differences) < 2:
        return f"{found.mean:+.1f} (one seed, so no interval)"
    inside = ", which includes 0" if found.low <= 0 <= found.high else ""
    count = len(differences)
    return (
        f"{found.mean:+.1f} (95 % interval over {counted(count, 'seed')} {found.low:+.1f} to "
        f"{found.high:+.1f}{inside})"
    )
