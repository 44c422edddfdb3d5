"""Warnings about a folder's files, patients and splits: worth a look, but not errors."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from fedquilt.core.shown_text import named_few
from fedquilt.core.wording import counted
from fedquilt.data.checks.annotation_map import build_annotation_map
from fedquilt.data.images.cache import ImageFile
from fedquilt.data.images.decoding import SUFFIXES
from fedquilt.data.label_files.csv_labels import CsvLabels
from fedquilt.data.sources.folder.load import Folder, FolderContent
from fedquilt.data.splits import SPLITS


def folder_warnings(source: Folder, content: FolderContent, depths: Counter[str]) -> list[str]:
    """Warnings that name no image and no patient; ``depths`` is empty if images are not opened."""
    return [
        *_file_warnings(Path(source.folder), content.files, depths),
        *_patient_warnings(content.table),
        *_split_warnings(content),
    ]


def _file_warnings(folder: Path, files: Sequence[ImageFile], depths: Counter[str]) -> list[str]:
    warnings = []
    in_folder = sum(
        name.lower().endswith(SUFFIXES) for _, _, names in os.walk(folder) for name in names
    )
    if in_folder > len(files):
        warnings.append(
            f"{in_folder - len(files):,} image files in the folder have no row in the label file: "
            "they are not used; add rows for them if they should be used"
        )
    if depths["12-bit"] and depths["16-bit"]:
        warnings.append(
            f"{depths['12-bit']:,} grey images have no value above 4095 and are read as 12-bit, "
            f"{depths['16-bit']:,} as 16-bit: if they come from one device, set window so that "
            "they share one brightness scale"
        )
    return warnings


def _patient_warnings(table: CsvLabels) -> list[str]:
    if table.groups is None and table.splits is None:
        return [
            "no patient column was named: if patients have several images, some may be in both "
            "train and test and make results look too good; name it with patient_column "
            "(--patient-column)"
        ]
    if table.groups is None or table.sites is None:
        return []
    sites_of: defaultdict[str, set[str]] = defaultdict(set)
    for group, site in zip(table.groups, table.sites):
        sites_of[group].add(site)
    several = sum(len(sites) > 1 for sites in sites_of.values())
    if not several:
        return []
    return [
        f"{counted(several, 'patient has', 'patients have')} images at more than one site: if "
        "patient numbers are only unique within a site, put the site in front of them"
    ]


def _split_warnings(content: FolderContent) -> list[str]:
    if content.splits is None:
        return []
    table, warnings = content.table, []
    for split in sorted(set(content.splits.tolist())):
        is_member = content.splits == split
        kept = is_member.nonzero()[0].tolist()
        sites = None if table.sites is None else [table.sites[index] for index in kept]
        found = build_annotation_map(table.labels[kept], table.known[kept], table.classes, sites)
        totals = (table.known & table.labels.bool()).sum(dim=0).tolist()
        lacking = [
            name
            for name, positives, total in zip(table.classes, found.total_positives, totals)
            if total and not positives
        ]
        if lacking:
            warnings.append(
                f"the {SPLITS[split]} split has no positive of {named_few([*map(repr, lacking)])}: "
                "annotate more, choose another split_seed or test_share, or give a split column"
            )
        absent = sorted(set(table.sites or ()).difference(sites or ()))
        if absent:
            names = named_few([*map(repr, absent)])
            warnings.append(
                f"the {SPLITS[split]} split has no image of site {names}: "
                "choose another split_seed or test_share, or give a split column"
            )
    return warnings
