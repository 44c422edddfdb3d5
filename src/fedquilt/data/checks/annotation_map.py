"""AnnotationMap: annotated images per site and class, and warnings that follow from it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedquilt.core.shown_text import named_few
from fedquilt.core.wording import counted

WHOLE_SET = "all images"  # the only row of a map without sites
DISCLOSURE_FLOOR = 10  # fewest positives with which a deployment releases a class prototype
SMALL_SITE = 20  # images

MAX_ALIKE = 5  # warnings of one kind

Counts = tuple[tuple[int, ...], ...]  # sites x classes
Alike = tuple[str, str]  # of what sites or classes a warning is, and the warning


@dataclass(frozen=True, kw_only=True)
class AnnotationMap:
    """Counts per site and class; an unannotated entry is neither positive nor negative.

    ``images[s]`` counts the images of ``sites[s]``; ``annotated[s][c]`` those with a known label of
    ``classes[c]``, of which ``positives[s][c]`` are positive.
    """

    classes: tuple[str, ...]
    sites: tuple[str, ...]
    images: tuple[int, ...]
    annotated: Counts
    positives: Counts

    @property
    def negatives(self) -> Counts:
        return tuple(
            tuple(known - positive for known, positive in zip(*rows))
            for rows in zip(self.annotated, self.positives)
        )

    @property
    def total_annotated(self) -> tuple[int, ...]:
        return tuple(map(sum, zip(*self.annotated)))

    @property
    def total_positives(self) -> tuple[int, ...]:
        return tuple(map(sum, zip(*self.positives)))

    def annotating_sites(self, class_index: int) -> tuple[str, ...]:
        """The sites that annotated the class in at least one image."""
        return tuple(s for s, row in zip(self.sites, self.annotated) if row[class_index])

    def is_one_sided(self, site_index: int, class_index: int) -> bool:
        """Whether the site annotated images of the class, but wrote only 1s or only 0s."""
        known = self.annotated[site_index][class_index]
        return known > 1 and self.positives[site_index][class_index] in (0, known)

    @property
    def has_one_sided(self) -> bool:
        return any(
            self.is_one_sided(site, label)
            for site in range(len(self.sites))
            for label in range(len(self.classes))
        )

    def of_classes(self, kept: Sequence[int]) -> AnnotationMap:
        """Return the map of some classes, by position."""
        return replace(
            self,
            classes=tuple(self.classes[index] for index in kept),
            annotated=tuple(tuple(row[index] for index in kept) for row in self.annotated),
            positives=tuple(tuple(row[index] for index in kept) for row in self.positives),
        )

    @classmethod
    def of_largest(
        cls,
        classes: Sequence[str],
        sites: Sequence[str],
        images: Sequence[int],
        counts: tuple[NDArray[np.integer[Any]], NDArray[np.integer[Any]]],
        most: int,
    ) -> AnnotationMap:
        """Return the map of the ``most`` largest sites, with the sums of all others behind them.

        ``counts`` are annotated and positives, (S, C) each.
        """
        kept, others = list(range(len(sites))), []
        if len(sites) > most + 1:
            by_size = sorted(kept, key=lambda site: -images[site])
            kept, others = sorted(by_size[:most]), by_size[most:]
        rest = [others] if others else []
        annotated, positives = (
            tuple(
                tuple(row)
                for row in (
                    *each[kept].tolist(),
                    *(each[some].sum(0, dtype=np.int64).tolist() for some in rest),
                )
            )
            for each in counts
        )
        return cls(
            classes=tuple(classes),
            sites=(*(sites[site] for site in kept), *(f"{len(some):,} others" for some in rest)),
            images=(
                *(images[site] for site in kept),
                *(sum(images[site] for site in some) for some in rest),
            ),
            annotated=annotated,
            positives=positives,
        )

    def with_largest_sites(self, most: int) -> AnnotationMap:
        """Return the map of the ``most`` largest sites, with the sums of all others behind them."""
        counts = np.asarray(self.annotated), np.asarray(self.positives)
        return self.of_largest(self.classes, self.sites, self.images, counts, most)

    def to_dict(self) -> dict[str, object]:
        return {
            "classes": list(self.classes),
            "sites": list(self.sites),
            "images": list(self.images),
            "annotated": [list(row) for row in self.annotated],
            "positives": [list(row) for row in self.positives],
            "negatives": [list(row) for row in self.negatives],
            "totals": {
                "images": sum(self.images),
                "annotated": list(self.total_annotated),
                "positives": list(self.total_positives),
                "negatives": [
                    known - positive
                    for known, positive in zip(self.total_annotated, self.total_positives)
                ],
            },
        }


def build_annotation_map(
    labels: Tensor, known: Tensor, classes: Sequence[str], sites: Sequence[str] | None = None
) -> AnnotationMap:
    """Count ``labels`` and ``known`` (N, C) by site; sites in natural order, 2 before 10."""
    names = sorted(set(sites), key=_natural_sort_key) if sites is not None else [WHOLE_SET]
    index_of = {name: index for index, name in enumerate(names)}
    site_of = torch.zeros(len(known), dtype=torch.int64)
    if sites is not None:
        site_of = torch.tensor([index_of[site] for site in sites], dtype=torch.int64)

    def count(entries: Tensor) -> Counts:
        table = torch.zeros(len(names), len(classes), dtype=torch.int64)
        table.index_add_(0, site_of, entries.long().cpu())
        return tuple(map(tuple, table.tolist()))

    return AnnotationMap(
        classes=tuple(classes),
        sites=tuple(names),
        images=tuple(site_of.bincount(minlength=len(names)).tolist()),
        annotated=count(known),
        positives=count(known & labels.bool()),
    )


def _natural_sort_key(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name)]


def annotation_warnings(found: AnnotationMap) -> list[str]:
    """What a user should know before training, with advice; sites first, then classes.

    Of many sites or classes with the same warning, the first are named.
    """
    warnings = [line for index in range(len(found.sites)) for line in _site_warnings(found, index)]
    annotated, positives = found.total_annotated, found.total_positives
    for index in range(len(found.classes)):
        warnings += _class_warnings(found, index, annotated[index], positives[index])
    return _first_of_each_kind(warnings)


def _first_of_each_kind(warnings: Sequence[Alike]) -> list[str]:
    counts = Counter(kind for kind, _ in warnings)
    seen: Counter[str] = Counter()
    lines = []
    for kind, text in warnings:
        seen[kind] += 1
        if counts[kind] <= MAX_ALIKE or seen[kind] < MAX_ALIKE:
            lines.append(text)
        elif seen[kind] == MAX_ALIKE:
            rest = counts[kind] - MAX_ALIKE + 1
            lines.append(f"{rest:,} more {kind}; the numbers of all of them are in --json")
    return lines


def _site_warnings(found: AnnotationMap, index: int) -> list[Alike]:
    name, images = found.sites[index], found.images[index]
    if not any(found.annotated[index]):
        text = (
            f"site {name!r} annotates no class ({counted(images, 'image')}): it helps only methods "
            "that use images without labels; check its column names, or leave it out"
        )
        return [("sites annotate no class", text)]
    if images < SMALL_SITE and len(found.sites) > 1:
        text = (
            f"site {name!r} has only {counted(images, 'image')}: its updates will be noisy and it "
            "may hold no test image; consider joining it to another site"
        )
        return [(f"sites have fewer than {SMALL_SITE} images", text)]
    return []


def _class_warnings(found: AnnotationMap, index: int, known: int, positives: int) -> list[Alike]:
    """``known`` and ``positives`` are the class's totals over sites."""
    name = found.classes[index]
    if known == 0:
        text = (
            f"class {name!r} is not annotated at all: nothing can be learnt or tested; leave it out"
        )
        return [("classes are not annotated at all", text)]
    if positives == 0:
        text = (
            f"class {name!r} has no positive among its {known:,} annotated images: it cannot be "
            "learnt; check how the column is coded, or leave the class out"
        )
        return [("classes have no positive", text)]
    warnings = _one_sided_warnings(found, index) if 0 < positives < known else []
    if positives == known:
        text = (
            f"class {name!r} has no negative among its {known:,} annotated images: write 0 where "
            "the finding is absent, since blank means not annotated"
        )
        warnings.append(("classes have no negative", text))
    annotating = [
        (site, row[index])
        for site, annotated, row in zip(found.sites, found.annotated, found.positives)
        if annotated[index]
    ]
    if len(annotating) == 1 and len(found.sites) > 1:
        text = (
            f"class {name!r} is annotated by 1 of {len(found.sites)} sites, "
            f"{counted(positives, 'positive')}: what the model learns about it shows what the "
            f"patients of site {annotating[0][0]!r} have, however well the transfer is encrypted; "
            "ask another site to annotate it"
        )
        warnings.append(("classes are annotated by one site", text))
    few = [f"{site} {count}" for site, count in annotating if count < DISCLOSURE_FLOOR]
    if few:
        text = (
            f"class {name!r} has fewer than {DISCLOSURE_FLOOR} positives at {len(few)} of "
            f"{len(annotating)} annotating sites ({named_few(few)}): numbers computed from so few "
            "patients may identify them, so in a study across hospitals these sites will not send "
            "them; rely on the other sites, or annotate more"
        )
        warnings.append((f"classes have fewer than {DISCLOSURE_FLOOR} positives at a site", text))
    return warnings


def _one_sided_warnings(found: AnnotationMap, index: int) -> list[Alike]:
    """One warning for the sites that wrote only 1s, and one for those that wrote only 0s."""
    advice = {
        "1s": "write 0 where somebody looked and it is absent, since blank means not annotated",
        "0s": "leave cells blank where nobody looked, since 0 means absent",
    }
    sites: dict[str, list[str]] = {"1s": [], "0s": []}
    for site, name in enumerate(found.sites):
        if found.is_one_sided(site, index):
            side = "1s" if found.positives[site][index] else "0s"
            sites[side].append(f"{name} ({counted(found.annotated[site][index], 'image')})")
    return [
        (
            f"classes have only {side} at a site",
            f"class {found.classes[index]!r} has only {side} at {named_few(names)}, and both at "
            f"other sites: {advice[side]}",
        )
        for side, names in sites.items()
        if names
    ]
