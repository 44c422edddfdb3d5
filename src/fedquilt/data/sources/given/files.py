"""from_files(): a list of image files and labels becomes a data source."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.data.images.cache import ImageFile, cached_images
from fedquilt.data.images.decoding import Decoding, Fit
from fedquilt.data.source import Splits
from fedquilt.data.sources.given.labels import Labels, labels_of, names_of, splits_of
from fedquilt.data.sources.given.load import Given
from fedquilt.data.splits import TEST, VALIDATION


@dataclass(frozen=True)
class OnDisk:
    """Image files with labels; they are decoded when they are needed, into the cache."""

    files: tuple[ImageFile, ...]  # those of the test split last
    decoding: Decoding
    train: MultiLabelDataset  # without pixels yet
    test: MultiLabelDataset
    is_validation: Tensor | None

    def load(self, cache: Path) -> Splits:
        """Decode the files that the cache lacks; both splits are slices of one mapped file."""
        images, count = cached_images(self.files, self.decoding, cache), len(self.train)
        return Splits(
            train=replace(self.train, images=images[:count]),
            test=replace(self.test, images=images[count:]),
            is_validation=self.is_validation,
        )


def from_files(  # noqa: PLR0913
    items: Iterable[tuple[str | Path, Sequence[Any]]],
    known: Any | None = None,
    *,
    classes: Sequence[str] | None = None,
    patients: Sequence[Any] | None = None,
    sites: Sequence[Any] | None = None,
    split: Sequence[str] | None = None,
    test_share: float = 0.2,
    split_seed: int = 0,
    size: int = 224,
    channels: Literal[1, 3] = 3,
    fit: Fit = "squash",
    window: tuple[float, float] | None = None,
) -> Given:
    """Make a recipe's data from pairs of an image file and its labels.

    Args:
        items: (path, labels) for each image; a label is 0, 1, or None or NaN for not annotated.
        known: (N, C) bool, which labels are annotated; default: all that are not None or NaN.
        classes: their names.
        patients: of each image, as in :func:`from_arrays`, like ``sites`` and ``split``.
        sites: of each image.
        split: of each image.
        test_share: of the images, if no ``split`` is given.
        split_seed: of that draw.
        size: of the decoded images, in pixels.
        channels: 1 (grey) or 3 (colour).
        fit: ``squash``, ``crop`` or ``pad``.
        window: 16-bit and DICOM values shown as black and white.
    """
    pairs = list(items)
    paths, rows = [Path(path) for path, _ in pairs], [list(row) for _, row in pairs]
    _check_lengths(rows)
    found = labels_of(rows, known, classes, len(paths))
    if len(set(paths)) < len(paths):
        raise UserError(
            f"{len(paths) - len(set(paths)):,} image files are given twice; give each once"
        )
    missing = [path for path in paths if not path.is_file()]
    if missing:
        raise UserError(
            f"{len(missing):,} of {len(paths):,} image files do not exist, the first is "
            f"{missing[0]}; give paths that open from here"
        )
    groups, places = names_of("patient", patients, found), names_of("site", sites, found)
    parts = splits_of(found, groups, places, split, test_share, split_seed)
    order = np.argsort(parts == TEST, kind="stable")
    train, test = (order[parts[order] != TEST], order[parts[order] == TEST])
    decoding = Decoding(size, channels, fit, window)
    files = tuple(ImageFile(str(paths[row]), paths[row], row + 1) for row in order.tolist())
    is_validation = torch.from_numpy(parts[train] == VALIDATION)
    content = OnDisk(
        files,
        decoding,
        _labels_only(train, paths, found, groups, places),
        _labels_only(test, paths, found, groups, places),
        is_validation if bool(is_validation.any()) else None,
    )
    source = Given(
        content=_hash(content),
        classes=found.classes,
        images=len(files),
        shape=(channels, size, size),
        decoding=decoding,
    )
    return source.holding(content)


def _check_lengths(rows: list[list[Any]]) -> None:
    lengths = {len(row) for row in rows}
    if len(lengths) != 1:
        raise UserError(
            "every image needs as many labels as there are classes; found rows of "
            f"{', '.join(map(str, sorted(lengths))) or 'no'} labels"
        )


def _labels_only(
    rows: Any,
    paths: Sequence[Path],
    labels: Labels,
    groups: tuple[str, ...] | None,
    sites: tuple[str, ...] | None,
) -> MultiLabelDataset:
    chosen = rows.tolist()
    return MultiLabelDataset(
        images=torch.zeros(1, 1, 1, 1, dtype=torch.uint8).expand(len(chosen), 1, 1, 1),
        labels=labels.values[chosen],
        known=labels.known[chosen],
        classes=labels.classes,
        ids=tuple(str(paths[row]) for row in chosen),
        groups=None if groups is None else tuple(groups[row] for row in chosen),
        sites=None if sites is None else tuple(sites[row] for row in chosen),
    )


def _hash(content: OnDisk) -> str:
    """Hash names and sizes of files, not their bytes: they are read when they are decoded."""
    digest = hashlib.sha256()
    for file in content.files:
        digest.update(repr((file.path.name, file.path.stat().st_size)).encode())
    for data in (content.train, content.test):
        digest.update((data.labels * data.known).numpy().data)
        digest.update(data.known.numpy().data)
        digest.update(repr((data.groups, data.sites)).encode())
    if content.is_validation is not None:
        digest.update(content.is_validation.numpy().data)
    return f"sha256:{digest.hexdigest()}"
