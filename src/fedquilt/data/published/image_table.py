"""ImageTable: the labels of a published data set, and how its images are loaded and split."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.wording import counted
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.data.images.bad_image import UNREADABLE_IMAGE, BadImage
from fedquilt.data.images.cache import ImageFile, cached_images
from fedquilt.data.images.decoding import Decoding
from fedquilt.data.images.index import ImageFolders
from fedquilt.data.problems import SHOWN_PLACES
from fedquilt.data.published.origin import Origin
from fedquilt.data.source import Splits

log = logging.getLogger(__name__)

Entry = TypeVar("Entry")


@dataclass(frozen=True, kw_only=True)
class ImageTable:
    """Labels and groups of all images, in the order of the label files; no image is opened."""

    classes: tuple[str, ...]
    ids: tuple[str, ...]
    lines: tuple[int, ...]  # the image's line in its label file, counted from 1
    labels: NDArray[np.uint8]  # (N, C), meaningful only where known
    known: NDArray[np.bool_] | None = None  # (N, C); None: every label is annotated
    groups: tuple[str, ...] | None = None  # the patient, lesion or user of each image
    sites: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, indices: NDArray[np.integer]) -> ImageTable:
        """The images at ``indices``, in that order."""
        return replace(
            self,
            ids=_pick(self.ids, indices),
            lines=_pick(self.lines, indices),
            labels=self.labels[indices],
            known=None if self.known is None else self.known[indices],
            groups=None if self.groups is None else _pick(self.groups, indices),
            sites=None if self.sites is None else _pick(self.sites, indices),
        )

    def select_classes(self, columns: Sequence[int]) -> ImageTable:
        """The classes at ``columns``, in that order."""
        return replace(
            self,
            classes=tuple(self.classes[column] for column in columns),
            labels=self.labels[:, columns],
            known=None if self.known is None else self.known[:, columns],
        )

    def with_images(self, images: Tensor) -> MultiLabelDataset:
        known = np.ones(self.labels.shape, bool) if self.known is None else self.known
        return MultiLabelDataset(
            images=images,
            labels=torch.from_numpy(np.ascontiguousarray(self.labels)),
            known=torch.from_numpy(np.ascontiguousarray(known)),
            classes=self.classes,
            ids=self.ids,
            groups=self.groups,
            sites=self.sites,
        )


@dataclass(frozen=True)
class SplitIndices:
    """The images of each split, as indices into a table; images in neither are left out."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]

    @classmethod
    def from_mask(
        cls, is_test: NDArray[np.bool_], is_left_out: NDArray[np.bool_] | None = None
    ) -> SplitIndices:
        in_use = np.ones(len(is_test), bool) if is_left_out is None else ~is_left_out
        return cls(np.flatnonzero(~is_test & in_use), np.flatnonzero(is_test & in_use))


def join_tables(train: ImageTable, test: ImageTable) -> tuple[ImageTable, SplitIndices]:
    """Join the tables of two published splits with the same classes."""
    shared = set(train.ids) & set(test.ids)
    if shared:
        raise UserError(
            f"{counted(len(shared), 'image is', 'images are')} in both the train and the test "
            "split; choose lists without common images"
        )
    count = len(train)
    both = ImageTable(
        classes=train.classes,
        ids=train.ids + test.ids,
        lines=train.lines + test.lines,
        labels=np.concatenate([train.labels, test.labels]),
        known=_both(train.known, test.known),
    )
    return both, SplitIndices(np.arange(count), np.arange(count, len(both)))


def load_splits(
    table: ImageTable,
    indices: SplitIndices,
    folders: ImageFolders,
    decode: Callable[[list[ImageFile]], Tensor],
) -> Splits:
    """Decode the images of both splits into one array; each split is a slice of it."""
    for name, members in (("train", indices.train), ("test", indices.test)):
        if not len(members):
            raise UserError(
                f"none of {len(table):,} images is in the {name} split; change the settings of "
                "the split, or give a folder with more images"
            )
    _check_no_repeats(table, folders.origin)
    order = np.concatenate([indices.train, indices.test])
    names = _pick(table.ids, order)
    paths = folders.locate_some(names, partial=folders.partial)
    files = [
        ImageFile(name, path, line)
        for name, path, line in zip(names, paths, _pick(table.lines, order))
        if path is not None
    ]
    is_there = np.array([path is not None for path in paths])
    count = len(indices.train)
    found = SplitIndices(indices.train[is_there[:count]], indices.test[is_there[count:]])
    missing = len(paths) - len(files)
    if missing:
        log.warning("%s", left_out_sentence(folders.origin, missing, len(paths)))
        for name, members in (("train", found.train), ("test", found.test)):
            if not len(members):
                raise UserError(f"no image of the {name} split is there; give a folder with some")
    images = decode(files)
    count = len(found.train)
    return Splits(
        train=table.select(found.train).with_images(images[:count]),
        test=table.select(found.test).with_images(images[count:]),
        missing_images=missing,
    )


def left_out_sentence(origin: Origin, missing: int, count: int) -> str:
    return (
        f"only a part of {origin.title} is there: {missing:,} of {counted(count, 'image')} missing "
        "and left out; numbers are not those of the whole data set"
    )


def load_image_splits(
    table: ImageTable, indices: SplitIndices, folders: ImageFolders, decoding: Decoding, cache: Path
) -> Splits:
    """Load PNG, JPEG and TIFF files, decoded by ``cached_images``."""

    def decode(files: list[ImageFile]) -> Tensor:
        return cached_images(files, decoding, cache, partial(bad_images_error, folders.origin))

    return load_splits(table, indices, folders, decode)


def _check_no_repeats(table: ImageTable, origin: Origin) -> None:
    repeated = len(table) - len(set(table.ids))
    if repeated:
        name = next(name for name, count in Counter(table.ids).items() if count > 1)
        raise UserError(
            f"{origin.title}: the labels name {counted(repeated, 'image')} more than once, such as "
            f"{name}; expected each image once. Download them again from {origin.location}"
        )


def bad_images_error(origin: Origin, bad: Sequence[tuple[ImageFile, BadImage]]) -> UserError:
    """One error for all unusable images; published file names are not private, so it names them."""
    lines = [f"{origin.title}: image files that cannot be used: {len(bad):,}; nothing was loaded"]
    lines += [f"    {file.path}: {each.detail}" for file, each in bad[:SHOWN_PLACES]]
    if len(bad) > SHOWN_PLACES:
        lines.append(f"    ... and {len(bad) - SHOWN_PLACES:,} more")
    kinds = {each.kind for _, each in bad}
    lines += sorted(kind.advice for kind in kinds - {UNREADABLE_IMAGE})
    if UNREADABLE_IMAGE in kinds:
        lines.append(f"damaged files: download them again from {origin.location}")
    return UserError("\n".join(lines))


def _pick(entries: Sequence[Entry], indices: NDArray[np.integer]) -> tuple[Entry, ...]:
    return tuple(entries[index] for index in indices.tolist())


def _both(
    first: NDArray[np.bool_] | None, second: NDArray[np.bool_] | None
) -> NDArray[np.bool_] | None:
    return None if first is None or second is None else np.concatenate([first, second])
