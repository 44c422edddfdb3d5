"""from_arrays() and from_dataset(): images in memory become a data source."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.data.source import Splits
from fedquilt.data.sources.given.labels import Labels, labels_of, names_of, splits_of
from fedquilt.data.sources.given.load import Given
from fedquilt.data.splits import TEST, VALIDATION

Array = Any  # a NumPy array, a tensor, or nested lists


@dataclass(frozen=True)
class InMemory:
    """Images that were given as an array."""

    splits: Splits

    def load(self, cache: Path) -> Splits:
        """Return the data; ``cache`` is not used."""
        return self.splits


def from_arrays(  # noqa: PLR0913
    images: Array,
    labels: Array,
    known: Array | None = None,
    *,
    classes: Sequence[str] | None = None,
    patients: Sequence[Any] | None = None,
    sites: Sequence[Any] | None = None,
    split: Sequence[str] | None = None,
    test: tuple[Array, ...] | None = None,
    test_share: float = 0.2,
    split_seed: int = 0,
) -> Given:
    """Make a recipe's data from arrays.

    Args:
        images: (N, channels, height, width), (N, height, width, 1 or 3) or (N, height, width);
            bytes 0 to 255, or floats from 0 to 1, which are rounded to bytes.
        labels: (N, C) of 0 and 1; NaN is not annotated.
        known: (N, C) bool, which labels are annotated; default: all that are not NaN.
        classes: their names; default: class 0, class 1 and so on.
        patients: of each image; all images of a patient stay in one split.
        sites: of each image: the clients of the partition ``natural``.
        split: ``train``, ``val`` or ``test`` for each image.
        test: images, labels and, if needed, known of a separate test part.
        test_share: of the images, drawn by patient, if neither ``split`` nor ``test`` is given.
        split_seed: of that draw.
    """
    if test is not None and split is not None:
        raise UserError("give split or test, not both: test is a test part of its own")
    pixels = pixels_of(images)
    found = labels_of(labels, known, classes, len(pixels))
    groups, places = names_of("patient", patients, found), names_of("site", sites, found)
    if test is None:
        parts = splits_of(found, groups, places, split, test_share, split_seed)
        splits = _divided(pixels, found, groups, places, parts)
    else:
        splits = Splits(
            train=_dataset("image", pixels, found, groups, places), test=_separate(test, found)
        )
        if splits.test.images.shape[1:] != pixels.shape[1:]:
            raise UserError(
                f"test images have shape {tuple(splits.test.images.shape[1:])}, the others "
                f"{tuple(pixels.shape[1:])}; bring them to one shape"
            )
    return _given(splits)


class ItemDataset(Protocol):
    """A torch Dataset: items are images and labels, or images, labels and known."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def from_dataset(dataset: ItemDataset, *, test: ItemDataset | None = None, **details: Any) -> Given:
    """Make a recipe's data from a torch Dataset; it is read once, into memory.

    Args:
        dataset: items are (image, labels) or (image, labels, known); an image is a PIL image, an
            array or a tensor, all of one shape.
        test: a dataset for testing.
        details: ``classes``, ``patients``, ``sites`` and the others of :func:`from_arrays`.
    """
    columns = _columns(dataset)
    known = columns[2] if len(columns) > 2 else None
    further = None if test is None else tuple(_columns(test))
    return from_arrays(columns[0], columns[1], known, test=further, **details)


def _columns(dataset: ItemDataset) -> list[NDArray[Any]]:
    """Return images, labels and, if items have it, known."""
    items = [dataset[index] for index in range(len(dataset))]
    if not items:
        raise UserError("the dataset has no items")
    lengths = {len(item) if isinstance(item, tuple | list) else 1 for item in items}
    if lengths not in ({2}, {3}):
        raise UserError(
            "items of the dataset must be (image, labels) or (image, labels, known), found "
            f"{type(items[0]).__name__}s of {', '.join(map(str, sorted(lengths)))} entries"
        )
    columns = [[np.asarray(entry) for entry in column] for column in zip(*items)]
    for name, column in zip(("images", "labels", "known"), columns):
        shapes = {each.shape for each in column}
        if len(shapes) > 1:
            raise UserError(
                f"the {name} of the dataset have {len(shapes)} shapes, such as "
                f"{' and '.join(map(str, sorted(shapes)[:2]))}; bring all to one shape"
            )
    return [np.stack(column) for column in columns]


def pixels_of(images: Array) -> Tensor:
    """(N, channels, height, width) uint8."""
    pixels = torch.as_tensor(np.asarray(images) if not isinstance(images, Tensor) else images)
    if pixels.ndim == 3:
        pixels = pixels[:, None]
    if pixels.ndim != 4:
        raise UserError(
            "images must have the shape (N, channels, height, width), (N, height, width, 1 or 3) "
            f"or (N, height, width), found {tuple(pixels.shape)}"
        )
    if pixels.shape[3] in (1, 3) and pixels.shape[1] not in (1, 3):
        pixels = pixels.permute(0, 3, 1, 2)
    return _bytes(pixels).contiguous()


def _bytes(pixels: Tensor) -> Tensor:
    if pixels.dtype == torch.uint8:
        return pixels
    low, high = (float(pixels.min()), float(pixels.max())) if pixels.numel() else (0.0, 0.0)
    if pixels.is_floating_point() and low >= 0 and high <= 1:
        return (pixels * 255).round().to(torch.uint8)
    if not pixels.is_floating_point() and low >= 0 and high <= 255 and pixels.dtype != torch.bool:
        return pixels.to(torch.uint8)
    raise UserError(
        f"images must be bytes from 0 to 255 or floats from 0 to 1, found {pixels.dtype} from "
        f"{low:g} to {high:g}; give pixels as they are, because fedquilt normalises them itself "
        "(mean and std of the model)"
    )


def _separate(test: tuple[Array, ...], train: Labels) -> MultiLabelDataset:
    if not isinstance(test, tuple) or len(test) not in (2, 3):
        raise UserError("test must be (images, labels) or (images, labels, known)")
    pixels = pixels_of(test[0])
    known = test[2] if len(test) > 2 else None
    found = labels_of(test[1], known, train.classes, len(pixels))
    return _dataset("test", pixels, found, None, None)


def _divided(
    pixels: Tensor,
    labels: Labels,
    groups: tuple[str, ...] | None,
    sites: tuple[str, ...] | None,
    parts: NDArray[np.int8],
) -> Splits:
    whole = _dataset("image", pixels, labels, groups, sites)
    train = torch.from_numpy(np.flatnonzero(parts != TEST))
    is_validation = torch.from_numpy(parts[parts != TEST] == VALIDATION)
    return Splits(
        train=whole.select(train),
        test=whole.select(torch.from_numpy(np.flatnonzero(parts == TEST))),
        is_validation=is_validation if bool(is_validation.any()) else None,
    )


def _dataset(
    what: str,
    pixels: Tensor,
    labels: Labels,
    groups: tuple[str, ...] | None,
    sites: tuple[str, ...] | None,
) -> MultiLabelDataset:
    return MultiLabelDataset(
        images=pixels,
        labels=labels.values,
        known=labels.known,
        classes=labels.classes,
        ids=tuple(f"{what}-{number:05d}" for number in range(len(pixels))),
        groups=groups,
        sites=sites,
    )


def _given(splits: Splits) -> Given:
    digest = hashlib.sha256()
    for data in (splits.train, splits.test):
        for tensor in (data.images, data.labels * data.known, data.known):
            digest.update(repr((tuple(tensor.shape), tensor.dtype)).encode())
            digest.update(tensor.contiguous().numpy().data)
        digest.update(repr((data.ids, data.groups, data.sites)).encode())
    if splits.is_validation is not None:
        digest.update(splits.is_validation.numpy().data)
    channels, height, width = splits.train.images.shape[1:]
    source = Given(
        content=f"sha256:{digest.hexdigest()}",
        classes=splits.train.classes,
        images=len(splits.train) + len(splits.test),
        shape=(channels, height, width),
    )
    return source.holding(InMemory(splits))
