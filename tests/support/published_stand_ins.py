"""Folders in the published layouts that are large enough for the papers' clients and classes.

Images have 8 pixels a side and random labels in which every class is frequent.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from support.dicom_files import CT_IMAGE, write_dicom

from fedquilt.data.sources.chestxray14.labels import FINDINGS
from fedquilt.data.sources.ham10000.labels import DIAGNOSES
from fedquilt.data.sources.pascal_voc.labels import OBJECTS

COUNT = 320  # images to train on
TESTED = 40
CLIENTS = 10
SIDE = 8


def labels(count: int, classes: int, seed: int = 0) -> np.ndarray:
    """(count, classes): about a fifth are positive, and each class has some positives."""
    found = np.random.default_rng(seed).random((count, classes)) < 0.2
    found[np.arange(count), np.arange(count) % classes] = True
    return found


def photograph(path: Path, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encoded(number, path.suffix))


def encoded(number: int, ending: str = ".jpg", side: int = SIDE) -> bytes:
    pixels = np.random.default_rng(number).integers(0, 256, (side, side, 3), np.uint8)
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG" if ending == ".png" else "JPEG")
    return content.getvalue()


def chestxray14(root: Path) -> None:
    found = labels(COUNT + TESTED, len(FINDINGS))
    found[::5] = False  # no finding
    names = [f"{number:08d}_000.png" for number in range(len(found))]
    lines = ["Image Index,Finding Labels,Patient ID,View Position"]
    for number, (name, row) in enumerate(zip(names, found)):
        present = [each for each, has in zip(FINDINGS, row) if has] or ["No Finding"]
        lines.append(f"{name},{'|'.join(present)},{number},PA")
        photograph(root / "images" / name, number)
    (root / "Data_Entry_2017_v2020.csv").write_text("\n".join(lines) + "\n")
    (root / "train_val_list.txt").write_text("\n".join(names[:COUNT]))
    (root / "test_list.txt").write_text("\n".join(names[COUNT:]))


def ham10000(root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    lines = ["lesion_id,image_id,dx,dx_type,age,sex,localization"]
    for number in range(COUNT + TESTED):
        name = f"ISIC_{number:07d}"
        diagnosis = DIAGNOSES[number % len(DIAGNOSES)].lower()
        lines.append(f"HAM_{number:07d},{name},{diagnosis},histo,80.0,male,scalp")
        photograph(root / "HAM10000_images_part_1" / f"{name}.jpg", number)
    (root / "HAM10000_metadata.csv").write_text("\n".join(lines) + "\n")


def rsna_ich(root: Path) -> None:
    kinds = ("epidural", "intraparenchymal", "intraventricular", "subarachnoid", "subdural")
    (root / "stage_1_train").mkdir(parents=True)
    lines = ["ID,Label"]
    for number, row in enumerate(labels(COUNT, len(kinds))):
        present = row if number % 5 else row & False
        name = f"ID_{number:09x}"
        lines += [f"{name}_{kind},{int(has)}" for kind, has in zip(kinds, present)]
        lines.append(f"{name}_any,{int(present.any())}")
        pixels = np.random.default_rng(number).integers(900, 1200, (SIDE, SIDE)).astype(np.int16)
        scale = {"RescaleSlope": 1, "RescaleIntercept": -1024, "PatientID": f"p{number}"}
        write_dicom(root / "stage_1_train" / f"{name}.dcm", pixels, CT_IMAGE, **scale)
    (root / "stage_1_train.csv").write_text("\n".join(lines) + "\n")


def pascal_voc(root: Path, year: int = 2007) -> None:
    home = root / "VOCdevkit" / f"VOC{year}"
    lists = home / "ImageSets" / "Main"
    lists.mkdir(parents=True)
    (home / "Annotations").mkdir()
    sets = {2007: ("trainval", "test"), 2012: ("train", "val")}[year]
    for image_set, first, count in zip(sets, (1, 5001), (COUNT, TESTED)):
        names = [f"{first + number:06d}" for number in range(count)]
        (lists / f"{image_set}.txt").write_text("".join(f"{name}\n" for name in names))
        found = labels(count, len(OBJECTS), seed=first)
        for name, row in zip(names, found):
            objects = "".join(
                f"<object><name>{each}</name><difficult>0</difficult></object>"
                for each, has in zip(OBJECTS, row)
                if has
            )
            start = f"<annotation><filename>{name}.jpg</filename>"
            (home / "Annotations" / f"{name}.xml").write_text(f"{start}{objects}</annotation>")
            photograph(home / "JPEGImages" / f"{name}.jpg", int(name))
        for column, each in enumerate(OBJECTS):
            lines = [f"{name} {1 if row[column] else -1:2d}\n" for name, row in zip(names, found)]
            (lists / f"{each}_{image_set}.txt").write_text("".join(lines))


def ms_coco(root: Path) -> None:
    categories = [{"id": number, "name": f"thing {number}"} for number in range(1, 13)]
    (root / "annotations").mkdir(parents=True)
    for split, first, count in (("train", 1, COUNT), ("val", 5001, TESTED)):
        found = labels(count, len(categories), seed=first)
        names = [f"COCO_{split}2014_{first + number:012d}.jpg" for number in range(count)]
        marks = [(row, column) for row, column in zip(*np.nonzero(found))]
        document = {
            "images": [
                {"id": first + row, "file_name": name, "width": SIDE, "height": SIDE}
                for row, name in enumerate(names)
            ],
            "categories": categories,
            "annotations": [
                {
                    "id": number,
                    "image_id": first + int(row),
                    "category_id": int(column) + 1,
                    "iscrowd": 0,
                }
                for number, (row, column) in enumerate(marks)
            ],
        }
        (root / "annotations" / f"instances_{split}2014.json").write_text(json.dumps(document))
        for row, name in enumerate(names):
            photograph(root / f"{split}2014" / name, first + row)


def flair(root: Path) -> None:
    entries = []
    for number, row in enumerate(labels(COUNT + TESTED, 6)):
        fine = [f"fine {column}" for column in np.flatnonzero(row)]
        coarse = sorted({f"coarse {column // 2}" for column in np.flatnonzero(row)})
        split = "train" if number < COUNT else "test"
        entries.append(
            {
                "user_id": f"{number // 4}@N00",
                "image_id": str(number),
                "labels": coarse,
                "partition": split,
                "fine_grained_labels": fine,
            }
        )
        photograph(root / "small_images" / f"{number}.jpg", number)
    (root / "labels_and_metadata.json").write_text(json.dumps(entries))
    lines = [f"fine {column} -> coarse {column // 2}\n" for column in range(6)]
    (root / "label_relationship.txt").write_text("".join(lines))


def cifar10(root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    arrays = {}
    for split, count in (("train", 400), ("test", 100)):
        images = [encoded(number, side=32) for number in range(count)]
        arrays[f"{split}_jpeg"] = np.frombuffer(b"".join(images), np.uint8)
        arrays[f"{split}_offsets"] = np.cumsum([0, *map(len, images)])
        arrays[f"{split}_labels"] = np.arange(count, dtype=np.uint8) % 10
    np.savez(root / "cifar10_jpeg.npz", **arrays)  # type: ignore[arg-type]


def dermamnist(root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    random, arrays = np.random.default_rng(0), {}
    for split, count in (("train", 210), ("val", 28), ("test", 70)):
        shape = (count, 28, 28, 3)
        arrays[f"{split}_images"] = random.integers(0, 256, shape, np.uint8)
        arrays[f"{split}_labels"] = (np.arange(count) % 7)[:, None].astype(np.uint8)
    np.savez(root / "dermamnist.npz", **arrays)  # type: ignore[arg-type]


def scenes(root: Path) -> None:
    names = ("desert", "mountains", "sea", "sunset", "trees")
    lines = [",".join(("image", *names))]
    for number, row in enumerate(labels(COUNT, len(names))):
        lines.append(",".join((f"{number}.jpg", *(str(int(each)) for each in row))))
        photograph(root / "images" / f"{number}.jpg", number)
    (root / "labels.csv").write_text("\n".join(lines) + "\n")


def digits(root: Path) -> None:
    """Nothing: they come with scikit-learn."""


WRITERS: dict[str, Callable[[Path], None]] = {
    "ich": rsna_ich,
    "chestxray14": chestxray14,
    "ham10000": ham10000,
    "cifar10": cifar10,
    "cifar10-128": cifar10,
    "cifar10-224": cifar10,
    "dermamnist": dermamnist,
    "flair": flair,
    "flair-fine": flair,
    "ms-coco": ms_coco,
    "miml-scenes": scenes,
    "digits": digits,
}


def write_stand_in(root: Path, data: str, paper: str) -> Path:
    """Write the files of one choice of data; the papers use different years of PASCAL VOC."""
    if data == "pascal-voc":
        pascal_voc(root, 2012 if paper == "fednca-ml" else 2007)
    else:
        WRITERS[data](root)
    return root


def few_canvases(data: str) -> Sequence[str]:
    """Settings that make data sets small which are painted or generated."""
    if data.startswith("cifar10"):
        return ("data.singles=20", "data.pairs=4", "data.test_singles=4", "data.test_pairs=1")
    if data == "dermamnist":
        return ("data.singles=20", "data.pairs=4", "data.test_singles=4", "data.test_pairs=1")
    return ("data.train=300", "data.test=60") if data == "digits" else ()
