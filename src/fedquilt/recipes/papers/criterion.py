"""Criteria: when a reproduced table counts as a success, with the verdict in words."""

from __future__ import annotations

import math
import statistics
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

# Rivals that have run: metric -> row -> column -> seed -> percent
Runs = Mapping[str, Mapping[str, Mapping[str, Mapping[int, float]]]]
Means = Mapping[str, Mapping[str, float]]  # of one metric: row -> column -> mean over seeds


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

    def means(self, runs: Runs) -> Means:
        return {
            row: {column: statistics.fmean(seeds.values()) for column, seeds in columns.items()}
            for row, columns in runs.get(self.metric, {}).items()
        }


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

    def judge(self, runs: Runs, labels: Mapping[str, str]) -> Verdict:
        means = self.means(runs)
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
        leads = {metric: self._lead(runs.get(metric, {})) for metric in (self.metric, *self.also)}
        missing = [metric for metric, lead in leads.items() if lead is None]
        if missing:
            needed = f"{labels[self.row]} and another method"
            return Verdict(None, f"{needed} have not both run with the same columns and seeds yet")
        told = [
            f"{labels[metric]} {_told(lead[1])} over {labels[lead[0]]}"
            for metric, lead in leads.items()
            if lead is not None
        ]
        holds = all(statistics.fmean(lead[1]) > 0 for lead in leads.values() if lead is not None)
        return Verdict(holds, "; ".join(told))

    def _lead(
        self, rows: Mapping[str, Mapping[str, Mapping[int, float]]]
    ) -> tuple[str, list[float]] | None:
        """Return the best other method, and by how much the method is ahead of it, per seed."""
        own = rows.get(self.row, {})
        leads: dict[str, list[float]] = {}
        for row, columns in rows.items():
            if row == self.row or not own or not set(own) <= set(columns):
                continue
            seeds = set.intersection(*(set(own[each]) & set(columns[each]) for each in own))
            if seeds:
                leads[row] = [
                    statistics.fmean(own[each][seed] - columns[each][seed] for each in own)
                    for seed in sorted(seeds)
                ]
        if not leads:
            return None
        best = min(leads, key=lambda row: statistics.fmean(leads[row]))
        return best, leads[best]


def _told(differences: list[float]) -> str:
    """The mean difference with its 95 % interval over seeds."""
    mean, count = statistics.fmean(differences), len(differences)
    if count < 2:
        return f"{mean:+.1f} (one seed, so no interval)"
    from scipy.stats import t

    half = float(t.ppf(0.975, count - 1)) * statistics.stdev(differences) / math.sqrt(count)
    interval = f"{mean - half:+.1f} to {mean + half:+.1f}"
    inside = ", which includes 0" if abs(mean) <= half else ""
    return f"{mean:+.1f} (95 % interval over {count} seeds {interval}{inside})"
