"""The VOC devkit's class lists, or its annotations where the lists are absent, as labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from fedquilt.core.errors import nearest
from fedquilt.data.published.image_table import ImageTable
from fedquilt.data.published.origin import Origin

OBJECTS = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa"),
    *("train", "tvmonitor"),
)
PRESENT, DIFFICULT, ABSENT = 1, 0, -1  # as the class lists write them


def read_part(origin: Origin, home: Path, part: str) -> ImageTable:
    """The images of ``part`` (train, val, trainval or test); difficult objects are not known."""
    lists = home / "ImageSets" / "Main"
    path = origin.find(lists, f"{part}.txt")
    ids = origin.read_text(path).split()
    if not ids:
        raise origin.wrong(path, "is empty", "one image name per line")
    if any((lists / f"{name}_{part}.txt").exists() for name in OBJECTS):
        states = read_class_lists(origin, lists, part, ids)
    else:
        states = read_annotations(origin, home, ids)
    return ImageTable(
        classes=OBJECTS,
        ids=tuple(ids),
        lines=tuple(range(1, len(ids) + 1)),
        labels=(states == PRESENT).astype(np.uint8),
        known=states != DIFFICULT,
    )


def read_class_lists(
    origin: Origin, lists: Path, part: str, ids: Sequence[str]
) -> NDArray[np.int8]:
    """(N, 20): what the twenty lists of a part say of each image."""
    states = np.empty((len(ids), len(OBJECTS)), np.int8)
    for column, name in enumerate(OBJECTS):
        path = origin.find(lists, f"{name}_{part}.txt")
        words = origin.read_text(path).split()
        said = dict(zip(words[::2], words[1::2]))
        strange = [word for word in said.values() if word not in ("-1", "0", "1")]
        if strange or len(words) % 2:
            found = f"says {strange[0]!r}" if strange else "has a name without a number"
            raise origin.wrong(path, found, "an image name and -1, 0 or 1 in each line")
        absent = [image for image in ids if image not in said]
        if absent:
            found = f"lacks {len(absent):,} images of {part}.txt, such as {absent[0]}"
            raise origin.wrong(path, found, "a line for each")
        states[:, column] = [int(said[image]) for image in ids]
    return states


def read_annotations(origin: Origin, home: Path, ids: Sequence[str]) -> NDArray[np.int8]:
    """The same from the XML file of each image: difficult where no object of the class is easy."""
    states = np.full((len(ids), len(OBJECTS)), ABSENT, np.int8)
    column = {name: number for number, name in enumerate(OBJECTS)}
    for row, image in enumerate(ids):
        path = origin.find(home / "Annotations", f"{image}.xml")
        for name, is_difficult in _objects(origin, path):
            if name not in column:
                found = f"has an object {name!r}{nearest(name, column)}"
                raise origin.wrong(path, found, "one of the twenty classes")
            state = DIFFICULT if is_difficult else PRESENT
            states[row, column[name]] = max(states[row, column[name]], state)
    return states


def _objects(origin: Origin, path: Path) -> list[tuple[str, bool]]:
    """Name and difficulty of each object; a file that declares entities is not parsed."""
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
