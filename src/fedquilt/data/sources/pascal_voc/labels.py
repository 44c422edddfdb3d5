"""Labels from the VOC devkit's class lists, or from its annotations if the lists are missing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from fedquilt.core.errors import UserError, nearest
from fedquilt.core.wording import counted
from fedquilt.data.published.image_table import ImageTable
from fedquilt.data.published.origin import Origin

OBJECTS = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa"),
    *("train", "tvmonitor"),
)
LISTS = Path("ImageSets") / "Main"
PRESENT, DIFFICULT, ABSENT = 1, 0, -1  # as the class lists write them


def read_image_set(origin: Origin, devkits: Sequence[Path], image_set: str) -> ImageTable:
    """Read an image set (train, val, trainval or test); difficult objects are not known."""
    devkit = _devkit_with(origin, devkits, image_set)
    lists = devkit / LISTS
    path = origin.find(lists, f"{image_set}.txt")
    ids = origin.read_text(path).split()
    if not ids:
        raise origin.wrong(path, "is empty", "one image name per line")
    if any((lists / f"{name}_{image_set}.txt").exists() for name in OBJECTS):
        states = read_class_lists(origin, lists, image_set, ids)
    else:
        states = read_annotations(origin, devkit, ids)
    return ImageTable(
        classes=OBJECTS,
        ids=tuple(ids),
        lines=tuple(range(1, len(ids) + 1)),
        labels=(states == PRESENT).astype(np.uint8),
        known=states != DIFFICULT,
    )


def _devkit_with(origin: Origin, devkits: Sequence[Path], image_set: str) -> Path:
    """The devkit that has the image set: the archives may be unpacked in a folder each."""
    file = LISTS / f"{image_set}.txt"
    found = [devkit for devkit in devkits if (devkit / file).is_file()]
    if not found:
        return devkits[0]  # whose lack is reported
    texts = {origin.read_text(devkit / file) for devkit in found}
    if len(texts) > 1:
        raise UserError(
            f"{origin.title}: {image_set}.txt differs in {found[0]} and in {found[1]}; remove the "
            "folder that is not meant, or give a folder with one of them"
        )
    return found[0]


def read_class_lists(
    origin: Origin, lists: Path, image_set: str, ids: Sequence[str]
) -> NDArray[np.int8]:
    """(N, 20): the state of each image in the class lists of an image set."""
    states = np.empty((len(ids), len(OBJECTS)), np.int8)
    for column, name in enumerate(OBJECTS):
        path = origin.find(lists, f"{name}_{image_set}.txt")
        words = origin.read_text(path).split()
        state_of = dict(zip(words[::2], words[1::2]))
        invalid = [word for word in state_of.values() if word not in ("-1", "0", "1")]
        if invalid or len(words) % 2:
            found = f"says {invalid[0]!r}" if invalid else "has a name without a number"
            raise origin.wrong(path, found, "an image name and -1, 0 or 1 in each line")
        absent = [image for image in ids if image not in state_of]
        if absent:
            found = f"lacks {counted(len(absent), 'image')} of {image_set}.txt, such as {absent[0]}"
            raise origin.wrong(path, found, "a line for each")
        states[:, column] = [int(state_of[image]) for image in ids]
    return states


def read_annotations(origin: Origin, devkit: Path, ids: Sequence[str]) -> NDArray[np.int8]:
    """(N, 20): the same from the XML files; difficult if all objects of the class are."""
    states = np.full((len(ids), len(OBJECTS)), ABSENT, np.int8)
    column = {name: number for number, name in enumerate(OBJECTS)}
    for row, image in enumerate(ids):
        path = origin.find(devkit / "Annotations", f"{image}.xml")
        for name, is_difficult in _objects(origin, path):
            if name not in column:
                found = f"has an object {name!r}{nearest(name, column)}"
                raise origin.wrong(path, found, "one of the twenty classes")
            state = DIFFICULT if is_difficult else PRESENT
            states[row, column[name]] = max(states[row, column[name]], state)
    return states


def _objects(origin: Origin, path: Path) -> list[tuple[str, bool]]:
    """The name of each object and whether it is difficult; entity declarations are rejected."""
    text = origin.read_text(path)
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise origin.wrong(path, "declares a document type", "plain XML as published")
    try:
        tree = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise origin.wrong(path, f"is not XML ({error})", "the file as published") from None
    return [
        (each.findtext("name", "").strip(), each.findtext("difficult", "0").strip() == "1")
        for each in tree.iter("object")
    ]
