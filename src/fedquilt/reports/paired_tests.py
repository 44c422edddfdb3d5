"""Tests of every two methods of a comparison, on the same test images and the same seeds.

A difference of AUCs is given with an interval for other patients and, of several seeds, other
seeds. What is not tested says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import isnan, nan
from statistics import fmean
from typing import Any

import numpy as np

from fedquilt.core.errors import UserError
from fedquilt.metrics import nan_to_none
from fedquilt.metrics.across_seeds import seed_difference, variance_with_seeds
from fedquilt.metrics.labelled_images import LabelledImages
from fedquilt.metrics.paired import (
    Difference,
    benjamini_hochberg,
    holm,
    needs_permutation,
    normal_difference,
    permutation_p_values,
    swaps,
)
from fedquilt.metrics.placements import Influence, Integers, sum_of_squares
from fedquilt.runs.intervals import scored_images
from fedquilt.runs.scores import Scores

SIGNIFICANT = 0.05  # after Holm's correction
MIN_UNITS = 6  # paired patients or seeds; with fewer no test can be significant
MIN_POSITIVE_PATIENTS = 10  # of the rarer kind, for a class to be judged
MANY_CLASSES = 50  # above it the false discovery rate is given as well
Seed = str  # everything in which runs of one row may differ


@dataclass(frozen=True)
class Contender:
    """One row of a comparison: a method's scores by seed, and the settings outside the method."""

    label: str
    scores: Mapping[Seed, Scores]
    counts: Mapping[Seed, str | None]  # of test labels per class, also of runs without scores
    settings: Mapping[str, str]
    is_bound: bool = False


@dataclass
class PairTest:
    """Two rows compared; ``why_not`` says in words why nothing was tested."""

    one: str
    other: str
    why_not: str | None = None
    seeds: int = 0
    patients: int = 0
    unit: str = "patient"
    macro: Difference = field(default_factory=lambda: Difference(nan, nan, nan, nan, nan))
    macro_classes: int = 0  # those with enough patients
    macro_holm: float = nan
    classes: dict[str, Difference] = field(default_factory=dict)
    holm: dict[str, float] = field(default_factory=dict)
    false_discovery: dict[str, float] = field(default_factory=dict)  # above 50 classes
    judged: set[str] = field(default_factory=set)  # classes with enough patients for a verdict

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        named = {
            name: {
                **vars(found),
                "p_holm": self.holm.get(name, nan),
                **({"p_bh": self.false_discovery[name]} if self.false_discovery else {}),
                "ahead": self.leader(name),
            }
            for name, found in self.classes.items()
        }
        macro = {**vars(self.macro), "p_holm": self.macro_holm, "classes": self.macro_classes}
        plain: dict[str, Any] = nan_to_none(
            {
                "one": self.one,
                "other": self.other,
                "why_not": self.why_not,
                "seeds": self.seeds,
                "patients": self.patients,
                "unit": self.unit,
                "macro_auc": macro | {"ahead": self.leader()},
                "classes": named,
                "words": sentence(self),
            }
        )
        return plain

    def leader(self, class_name: str | None = None) -> str | None:
        """Return the row that is significantly ahead, for the macro-AUC or for one class."""
        if class_name is None:
            found, p, is_judged = self.macro, self.macro_holm, self.macro_classes > 0
        else:
            missing = Difference(nan, nan, nan, nan, nan)
            found, p = self.classes.get(class_name, missing), self.holm.get(class_name, nan)
            is_judged = class_name in self.judged
        enough = self.seeds if self.unit == "seed" else self.patients
        if isnan(p) or p >= SIGNIFICANT or not is_judged or enough < MIN_UNITS:
            return None
        return self.one if found.value > 0 else self.other


def paired_tests(rows: Sequence[Contender], of: str | None = None) -> list[PairTest]:
    """Test all pairs of rows that are not bounds, or those of one row; p are adjusted for them.

    Raise UserError on different test data.
    """
    require_same_tests(rows)
    rivals = [row for row in rows if not row.is_bound]
    pairs = [pair for pair in combinations(rivals, 2) if of in (None, *(r.label for r in pair))]
    tests = [_test_pair(one, other) for one, other in pairs]
    for test, p in zip(tests, holm([test.macro.p for test in tests])):
        test.macro_holm = p
    cells = [(test, name) for test in tests for name in test.classes]
    p_values = [test.classes[name].p for test, name in cells]
    for (test, name), p in zip(cells, holm(p_values)):
        test.holm[name] = p
    if len({name for _, name in cells}) > MANY_CLASSES:
        for (test, name), p in zip(cells, benjamini_hochberg(p_values)):
            test.false_discovery[name] = p
    return tests


def ahead_of_all(
    tests: Sequence[PairTest], rows: Sequence[str], class_name: str | None = None
) -> str | None:
    """Return the row that is significantly ahead of each of the others, if there is one."""
    leaders = [test.leader(class_name) for test in tests]
    return next(
        (row for row in rows if len(rows) > 1 and leaders.count(row) == len(rows) - 1), None
    )


def require_same_tests(rows: Sequence[Contender]) -> None:
    """Refuse rows of which a common seed was tested on different images, labels or masks."""
    for one, other in combinations(rows, 2):
        for seed in sorted(one.counts.keys() & other.counts.keys()):
            found = _difference_of_tests(one, other, seed)
            if found is not None:
                raise UserError(
                    f"{one.label} and {other.label} were tested on different data ({found}), so "
                    "their numbers cannot be compared; give runs with the same test images, "
                    "labels and mask, or rank methods over several data sets: --across-data-sets"
                )


def _difference_of_tests(one: Contender, other: Contender, seed: Seed) -> str | None:
    mine, theirs = one.scores.get(seed), other.scores.get(seed)
    if mine is not None and theirs is not None:
        return None if mine.hash == theirs.hash else _difference(mine, theirs)
    counts = (one.counts[seed], other.counts[seed])
    if None in counts or counts[0] == counts[1]:
        return None
    return "other classes, or other numbers of positives and negatives"


def _difference(one: Scores, other: Scores) -> str:
    if one.classes != other.classes:
        return f"{len(one.classes)} and {len(other.classes)} classes, or other names"
    if one.ids != other.ids:
        return f"{len(one)} and {len(other)} images, or other ones"
    return "the same images with other labels or another mask"


def _test_pair(one: Contender, other: Contender) -> PairTest:
    test = PairTest(one.label, other.label)
    differing = sorted(
        place
        for place in one.settings.keys() | other.settings.keys()
        if one.settings.get(place) != other.settings.get(place)
    )
    seeds = sorted(one.scores.keys() & other.scores.keys())
    if differing:
        test.why_not = f"they differ in more than the method: {', '.join(differing)}"
    elif not one.scores or not other.scores:
        lacking = one.label if not one.scores else other.label
        test.why_not = f"{lacking} has no scores per image (fedquilt evaluate RUN --keep-scores)"
    elif not seeds:
        test.why_not = "they have no random seed in common"
    else:
        pairs = [(one.scores[seed], other.scores[seed]) for seed in seeds]
        test.seeds = len(seeds)
        if len({mine.hash for mine, _ in pairs}) == 1:
            _test_on_one_test_part(test, pairs)
        else:
            _test_over_splits(test, pairs)
    return test


def _test_on_one_test_part(test: PairTest, pairs: Sequence[tuple[Scores, Scores]]) -> None:
    """Compare per class and on average, for other patients and other seeds."""
    first = pairs[0][0]
    images = scored_images(first)
    test.patients, test.unit = images.patient_count, images.unit
    columns = [
        zip(*(images.influences([*each.logits.values()]) for each in side)) for side in zip(*pairs)
    ]
    judged: list[tuple[list[float], Any]] = []
    waiting: dict[str, Integers] = {}
    for column, (name, ours, theirs) in enumerate(zip(first.classes, *columns)):
        values = [a.auc - b.auc for a, b in zip(ours, theirs)]
        gap = np.mean([a.of_patients - b.of_patients for a, b in zip(ours, theirs)], axis=0)
        test.classes[name] = _class_difference(ours[0], values, sum_of_squares(gap))
        if ours[0].size.rarer_patients >= MIN_POSITIVE_PATIENTS:
            test.judged.add(name)
            judged.append((values, gap))
        if needs_permutation(ours[0]) and (found := _swaps(images, column, pairs)) is not None:
            waiting[name] = found
    for name, p in zip(waiting, permutation_p_values([*waiting.values()])):
        test.classes[name] = replace(test.classes[name], p=p, test="permutation")
    test.macro_classes = len(judged)
    if judged:
        per_seed = [fmean(values) for values in zip(*(values for values, _ in judged))]
        of_patients = sum_of_squares(np.mean([gap for _, gap in judged], axis=0))
        variance = variance_with_seeds(per_seed, of_patients)
        test.macro = normal_difference(fmean(per_seed), variance)


def _class_difference(size_of: Influence, values: Sequence[float], variance: float) -> Difference:
    if not size_of.size.is_testable:
        return Difference(nan, nan, nan, nan, nan)
    if not size_of.is_estimated:
        return normal_difference(fmean(values), nan)
    return normal_difference(fmean(values), variance_with_seeds(values, variance))


def _swaps(
    images: LabelledImages, column: int, pairs: Sequence[tuple[Scores, Scores]]
) -> Integers | None:
    """The swaps of all seeds together; None where a run has several models."""
    if any(len(each.logits) > 1 for pair in pairs for each in pair):
        return None
    entries = images.of_class(column)
    of_seeds = []
    for pair in pairs:
        ours, theirs = (next(iter(each.logits.values()))[entries.rows, column] for each in pair)
        of_seeds.append(swaps(ours, theirs, entries.positive, entries.patients))
    total: Integers = np.sum(of_seeds, axis=0)
    return total


def _test_over_splits(test: PairTest, pairs: Sequence[tuple[Scores, Scores]]) -> None:
    """Every seed has its own test images: the seeds are the units."""
    test.unit = "seed"
    values = []
    for ours, theirs in pairs:
        images = scored_images(ours)
        sides = [images.influences([*each.logits.values()]) for each in (ours, theirs)]
        gaps = [a.auc - b.auc for a, b in zip(*sides) if a.size.is_testable]
        values.append(fmean(gaps) if gaps else nan)
        test.patients += images.patient_count
    found = seed_difference(values)
    error = found.deviation / len(values) ** 0.5
    test.macro = Difference(found.mean, error, found.low, found.high, found.p)
    test.macro_classes = len(pairs[0][0].classes)


def sentence(test: PairTest) -> str:
    """Say in words what the test of the macro-AUC found."""
    pair, found = f"{test.one} and {test.other}", test.macro
    if test.why_not is not None:
        return f"{pair} are not tested: {test.why_not}"
    if test.macro_classes == 0:
        return (
            f"too few to tell {pair} apart: no class has {MIN_POSITIVE_PATIENTS} "
            f"{test.unit}s with and without it"
        )
    units = test.seeds if test.unit == "seed" else test.patients
    if units < MIN_UNITS or isnan(found.p):
        return (
            f"too few to tell {pair} apart: {units} {test.unit}{'s' * (units != 1)}, at least "
            f"{MIN_UNITS} are needed"
        )
    numbers = (
        f"{100 * found.value:+.1f} points of macro-AUC for {test.one} (95 % interval "
        f"{100 * found.low:+.1f} to {100 * found.high:+.1f}, p {test.macro_holm:.2g} after Holm)"
    )
    leader = test.leader()
    if leader is None:
        return f"no significant difference between {pair}: {numbers}"
    loser = test.other if leader == test.one else test.one
    return f"{leader} is significantly ahead of {loser}: {numbers}"
