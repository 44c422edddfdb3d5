"""What published label files say of each image, and its train and test splits."""

from __future__ import annotations

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
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.data.images.bad_image import UNREADABLE_IMAGE, BadImage
from fedquilt.data.images.cache import ImageFile, cached_images
from fedquilt.data.images.decoding import Decoding
from fedquilt.data.images.index import ImageFolders
from fedquilt.data.problems import SHOWN_PLACES
from fedquilt.data.published.origin import Origin
from fedquilt.data.source import Splits


def bad_images_error(origin: Origin, bad: Sequence[tuple[ImageFile, BadImage]]) -> UserError:
    """Names the files, unlike the error for a user's own ones: what is published is no secret."""
    lines = [f"{origin.title}: image files that cannot be used: {len(bad):,}; nothing was loaded"]
    lines += [f"    {file.path}: {each.detail}" for file, each in bad[:SHOWN_PLACES]]
    if len(bad) > SHOWN_PLACES:
        lines.append(f"    ... and {len(bad) - SHOWN_PLACES:,} more")
    kinds = {each.kind for _, each in bad}
    lines += sorted(kind.advice for kind in kinds - {UNREADABLE_IMAGE})
    if UNREADABLE_IMAGE in kinds:
        lines.append(f"damaged files: get them again from {origin.place}")
    return UserError("\n".join(lines))


Entry = TypeVar("Entry")


@dataclass(frozen=True, kw_only=True)
class ImageTable:
    """One row per image, in the order of the label files, before any image is opened."""

    classes: tuple[str, ...]
    ids: tuple[str, ...]
    lines: tuple[int, ...]  # where the image stands in its label file, counted from 1
    labels: NDArray[np.uint8]  # (N, C), meaningful only where known
    known: NDArray[np.bool_] | None = None  # (N, C); None: all of it
    groups: tuple[str, ...] | None = None  # the patient, lesion or user of each image
    sites: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, rows: NDArray[np.integer]) -> ImageTable:
        return replace(
            self,
            ids=_pick(self.ids, rows),
            lines=_pick(self.lines, rows),
            labels=self.labels[rows],
            known=None if self.known is None else self.known[rows],
            groups=None if self.groups is None else _pick(self.groups, rows),
            sites=None if self.sites is None else _pick(self.sites, rows),
        )

    def columns(self, columns: Sequence[int]) -> ImageTable:
        """These classes, in this order."""
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
class Parts:
    """Rows of a table; those in neither part are left out."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]

    @classmethod
    def of(cls, is_test: NDArray[np.bool_], is_left_out: NDArray[np.bool_] | None = None) -> Parts:
        in_use = np.ones(len(is_test), bool) if is_left_out is None else ~is_left_out
        return cls(np.flatnonzero(~is_test & in_use), np.flatnonzero(is_test & in_use))


def join(train: ImageTable, test: ImageTable) -> tuple[ImageTable, Parts]:
    """One table of two with the same classes, which are published apart."""
    shared = set(train.ids) & set(test.ids)
    if shared:
        raise UserError(
            f"{len(shared):,} images are in both the train and the test part; choose lists that "
            "have none in common"
        )
    count = len(train)
    both = ImageTable(
        classes=train.classes,
        ids=train.ids + test.ids,
        lines=train.lines + test.lines,
        labels=np.concatenate([train.labels, test.labels]),
        known=_both(train.known, test.known),
    )
    return both, Parts(np.arange(count), np.arange(count, len(both)))


def load_parts(
    table: ImageTable,
    parts: Parts,
    folders: ImageFolders,
    decode: Callable[[list[ImageFile]], Tensor],
) -> Splits:
    """Decode the images of both parts and cut them in two without a copy."""
    for name, rows in (("train", parts.train), ("test", parts.test)):
        if not len(rows):
            raise UserError(
                f"no image is in the {name} part of {len(table):,} images; change the settings "
                "of the split, or give a folder with more images"
            )
    _refuse_repeated(table, folders.origin)
    order = np.concatenate([parts.train, parts.test])
    names = _pick(table.ids, order)
    images = decode(
        [
            ImageFile(name, path, line)
            for name, path, line in zip(names, folders.locate(names), _pick(table.lines, order))
        ]
    )
    count = len(parts.train)
    return Splits(
        train=table.rows(parts.train).with_images(images[:count]),
        test=table.rows(parts.test).with_images(images[count:]),
    )


def _refuse_repeated(table: ImageTable, origin: Origin) -> None:
    repeated = len(table) - len(set(table.ids))
    if repeated:
        name = next(name for name, count in Counter(table.ids).items() if count > 1)
        raise UserError(
            f"{origin.title}: the labels name {repeated:,} images more than once, such as {name}; "
            f"expected each image once. Get them again from {origin.place}"
        )


def load_pictures(
    table: ImageTable, parts: Parts, folders: ImageFolders, decoding: Decoding, cache: Path
) -> Splits:
    """The same for PNG, JPEG and TIFF files, which ``cached_images`` decodes."""

    def decode(files: list[ImageFile]) -> Tensor:
        return cached_images(files, decoding, cache, partial(bad_images_error, folders.origin))

    return load_parts(table, parts, folders, decode)


def _pick(entries: Sequence[Entry], rows: NDArray[np.integer]) -> tuple[Entry, ...]:
    return tuple(entries[row] for row in rows.tolist())


def _both(
    first: NDArray[np.bool_] | None, second: NDArray[np.bool_] | None
) -> NDArray[np.bool_] | None:
    return None if first is None or second is None else np.concatenate([first, second])
