"""AnnotationMap: annotated images per site and class, and warnings that follow from it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

WHOLE_SET = "all images"  # the only row of a map without sites
DISCLOSURE_FLOOR = 10  # fewest positives with which a deployment releases a class prototype
SMALL_SITE = 20  # images

Counts = tuple[tuple[int, ...], ...]  # sites x classes


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
    """What a user should know before training, with advice; sites first, then classes."""
    warnings = [line for index in range(len(found.sites)) for line in _site_warnings(found, index)]
    for index in range(len(found.classes)):
        warnings += _class_warnings(found, index)
    return warnings


def _site_warnings(found: AnnotationMap, index: int) -> list[str]:
    name, images = found.sites[index], found.images[index]
    if not any(found.annotated[index]):
        return [
            f"site {name!r} annotates no class ({images:,} images): it helps only methods that use "
            "images without labels; check its column names, or leave it out"
        ]
    if images < SMALL_SITE and len(found.sites) > 1:
        return [
            f"site {name!r} has only {images} images: its updates will be noisy and it may hold no "
            "test image; consider joining it to another site"
        ]
    return []


def _class_warnings(found: AnnotationMap, index: int) -> list[str]:
    name = found.classes[index]
    known, positives = found.total_annotated[index], found.total_positives[index]
    annotating = found.annotating_sites(index)
    if known == 0:
        return [
            f"class {name!r} is not annotated at all: nothing can be learnt or tested; leave it out"
        ]
    if positives == 0:
        return [
            f"class {name!r} has no positive among its {known:,} annotated images: it cannot be "
            "learnt; check how the column is coded, or leave the class out"
        ]
    warnings = _one_sided_warnings(found, index) if 0 < positives < known else []
    if positives == known:
        warnings.append(
            f"class {name!r} has no negative among its {known:,} annotated images: write 0 where "
            "the finding is absent, since blank means not annotated"
        )
    if len(annotating) == 1 and len(found.sites) > 1:
        warnings.append(
            f"class {name!r} is annotated by 1 of {len(found.sites)} sites, {positives:,} "
            f"positives: what the model learns about it shows what the patients of site "
            f"{annotating[0]!r} have, however well the transfer is encrypted; ask another site to "
            "annotate it"
        )
    few = [
        f"{site} {row[index]}"
        for site, row in zip(found.sites, found.positives)
        if site in annotating and row[index] < DISCLOSURE_FLOOR
    ]
    if few:
        warnings.append(
            f"class {name!r} has fewer than {DISCLOSURE_FLOOR} positives at {len(few)} of "
            f"{len(annotating)} annotating sites ({', '.join(few)}): numbers computed from so few "
            "patients may identify them, so in a study across hospitals these sites will not send "
            "them; rely on the other sites, or annotate more"
        )
    return warnings


def _one_sided_warnings(found: AnnotationMap, index: int) -> list[str]:
    """One warning for the sites that wrote only 1s, and one for those that wrote only 0s."""
    advice = {
        "1s": "write 0 where somebody looked and it is absent, since blank means not annotated",
        "0s": "leave cells blank where nobody looked, since 0 means absent",
    }
    sites: dict[str, list[str]] = {"1s": [], "0s": []}
    for site, name in enumerate(found.sites):
        if found.is_one_sided(site, index):
            side = "1s" if found.positives[site][index] else "0s"
            sites[side].append(f"{name} ({found.annotated[site][index]:,} images)")
    return [
        f"class {found.classes[index]!r} has only {side} at {', '.join(names)}, and both at other "
        f"sites: {advice[side]}"
        for side, names in sites.items()
        if names
    ]
