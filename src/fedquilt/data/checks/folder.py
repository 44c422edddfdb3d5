"""Check a folder of images and its label file before training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

from fedquilt.core.wording import counted
from fedquilt.data.checks.annotation_map import (
    AnnotationMap,
    annotation_warnings,
    build_annotation_map,
)
from fedquilt.data.checks.look_alikes import look_alike_warnings
from fedquilt.data.checks.warnings import folder_warnings
from fedquilt.data.images.bad_image import BadImage
from fedquilt.data.images.cache import ImageFile, decode_in_order, report_bad_image
from fedquilt.data.images.decoding import decode_image
from fedquilt.data.label_files.csv_labels import CsvLabels
from fedquilt.data.problems import Kind, Place, Problem, Problems
from fedquilt.data.sources.folder.load import Folder, FolderContent, read_folder
from fedquilt.data.splits import TEST, TRAIN, VALIDATION

BAD_SETTING = Kind("bad-setting", "a setting is wrong", "change the setting and check again")
NO_IMAGE_AT_SITE = Kind(
    "site-without-image",
    "sites without a usable image",
    "add the site's images, or remove its rows",
)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Counts that describe the data set."""

    images: int
    classes: int
    sites: int | None
    patients: int | None
    train: int | None
    test: int | None
    validation: int | None = None  # rows that a split column marks val
    annotated_share: float  # of all entries
    depths: dict[str, int]  # files per bit depth; empty if images were not opened

    def sentence(self) -> str:
        phrases = [counted(self.images, "image"), counted(self.classes, "class", "classes")]
        phrases += [counted(self.sites, "site")] if self.sites is not None else []
        phrases += [counted(self.patients, "patient")] if self.patients is not None else []
        phrases += [f"{self.annotated_share:.1%} of the labels annotated"]
        if self.train is not None:
            validation = f"{self.validation:,} validation and " if self.validation else ""
            joined = " and " if not validation else ", "
            phrases.append(f"{self.train:,} train{joined}{validation}{self.test:,} test")
        phrases += [counted(count, f"{depth} file") for depth, count in sorted(self.depths.items())]
        return ", ".join(phrases)


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The result of a check; ``problems`` must be fixed, ``warnings`` and ``notices`` need not."""

    problems: tuple[Problem, ...]
    warnings: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    summary: Summary | None = None
    annotation_map: AnnotationMap | None = None

    def to_dict(self) -> dict[str, object]:
        return {
            "ok": not self.problems,
            "problems": [problem.to_dict() for problem in self.problems],
            "warnings": list(self.warnings),
            "notices": list(self.notices),
            "summary": None if self.summary is None else vars(self.summary),
            "annotation_map": self.annotation_map and self.annotation_map.to_dict(),
        }

    def with_problem(self, problem: Problem) -> CheckResult:
        return replace(self, problems=(*self.problems, problem))


def bad_setting(message: str) -> Problem:
    """A problem with a setting, not with the files."""
    return Problem(BAD_SETTING, "", 1, (Place(message),))


def check(source: Folder, *, open_images: bool = True) -> CheckResult:
    """Check labels and files and, with ``open_images``, decode every image; write nothing.

    Raises ``UserError`` only if the label-name file cannot be read.
    """
    problems = Problems()
    content = read_folder(source, problems)
    if content is None:
        return CheckResult(problems=tuple(problems))
    table = content.table
    usable, depths, digests = content.files, Counter[str](), dict[int, bytes]()
    if open_images:
        usable, depths, digests = _decode_all(content.files, source, problems)
    _report_empty_sites(table, {file.line for file in usable}, problems)
    found = build_annotation_map(table.labels, table.known, table.classes, table.sites)
    warnings = [
        *folder_warnings(source, content, depths),
        *look_alike_warnings(content, digests),
        *annotation_warnings(found),
    ]
    return CheckResult(
        problems=tuple(problems),
        warnings=tuple(warnings),
        notices=table.notices,
        summary=_summary(content, depths),
        annotation_map=found,
    )


def _decode_all(
    files: Sequence[ImageFile], source: Folder, problems: Problems
) -> tuple[list[ImageFile], Counter[str], dict[int, bytes]]:
    """Return the usable files, how many have each bit depth, and a hash of each by line."""

    def decode(path: Path) -> tuple[str, bytes]:
        decoded = decode_image(path, source.decoding)
        shows_nothing = decoded.pixels.min() == decoded.pixels.max()  # like any other empty image
        content = b"" if shows_nothing else decoded.pixels.tobytes()
        return decoded.depth, content and blake2b(content, digest_size=16).digest()

    usable, depths, digests = [], Counter[str](), dict[int, bytes]()
    for file, result in decode_in_order(files, decode, "checking images"):
        if isinstance(result, BadImage):
            report_bad_image(file, result, problems)
        else:
            usable.append(file)
            depths[result[0]] += 1
            if result[1]:
                digests[file.line] = result[1]
    return usable, depths, digests


def _report_empty_sites(table: CsvLabels, usable: set[int], problems: Problems) -> None:
    if table.sites is None or not usable:  # without any image, another problem says why
        return
    counts: Counter[str] = Counter()
    for site, line in zip(table.sites, table.lines):
        counts[site] += line in usable
    for site, count in counts.items():
        if not count and site:
            problems.add(NO_IMAGE_AT_SITE, f"site {site!r}")


def _summary(content: FolderContent, depths: Counter[str]) -> Summary:
    table, splits = content.table, content.splits
    return Summary(
        images=len(table.ids),
        classes=len(table.classes),
        sites=None if table.sites is None else len(set(table.sites)),
        patients=None if table.groups is None else len(set(table.groups)),
        train=None if splits is None else int((splits == TRAIN).sum()),
        test=None if splits is None else int((splits == TEST).sum()),
        validation=None if splits is None else int((splits == VALIDATION).sum()),
        annotated_share=float(table.known.float().mean()),
        depths=dict(depths),
    )
