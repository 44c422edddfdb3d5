"""Small folders in the published layouts of data sets, for the tests of the sources.

Image number i is grey of value 10 * i, so that tests can identify it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from support.dicom_files import CT_IMAGE, write_dicom
from support.folder_files import write_grey


def grey_of(number: int) -> int:
    return 10 * number


def write_images(folder: Path, names: Iterable[str], *, first: int = 0) -> None:
    for number, name in enumerate(names, start=first):
        write_grey(folder / name, grey_of(number))


CHEST_ROWS = (  # image, findings, patient, view
    ("00000001_000.png", "Cardiomegaly", 1, "PA"),
    ("00000001_001.png", "Cardiomegaly|Emphysema", 1, "AP"),
    ("00000002_000.png", "No Finding", 2, "PA"),
    ("00000003_000.png", "Effusion|Infiltration|Mass", 3, "PA"),
    ("00000003_001.png", "Effusion|Pleural_Thickening", 3, "PA"),
    ("00000004_000.png", "Hernia", 4, "PA"),
)
CHEST_TEST = ("00000003_000.png", "00000003_001.png")


def write_chestxray14(root: Path) -> Path:
    """Write NIH's first table, which ends every line with a comma, and two of Kaggle's folders."""
    header = (
        "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,"
        "View Position,OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y],\n"
    )
    lines = [f"{n},{f},0,{p},058Y,M,{v},2682,2749,0.143,0.143,\n" for n, f, p, v in CHEST_ROWS]
    root.mkdir(parents=True, exist_ok=True)
    (root / "Data_Entry_2017.csv").write_text(header + "".join(lines))
    names = [row[0] for row in CHEST_ROWS]
    train = [name for name in names if name not in CHEST_TEST]
    (root / "train_val_list.txt").write_text("\n".join(train))
    (root / "test_list.txt").write_text("\n".join(CHEST_TEST) + "\n")
    write_images(root / "images_001" / "images", names[:3])
    write_images(root / "images_012" / "images", names[3:], first=3)
    return root


_LESIONS = ("nv", "mel", "bcc", "akiec", "bkl", "df", "vasc", "nv", "mel", "nv")
SKIN_ROWS = tuple(  # image, lesion, diagnosis: two photographs of each lesion
    (f"ISIC_{24306 + number:07d}", f"HAM_{number // 2:07d}", _LESIONS[number // 2])
    for number in range(20)
)


def write_ham10000(root: Path) -> Path:
    """Write the Dataverse layout, with the photographs in two folders."""
    root.mkdir(parents=True, exist_ok=True)
    header = "lesion_id,image_id,dx,dx_type,age,sex,localization\n"
    lines = [f"{lesion},{image},{dx},histo,80.0,male,scalp\n" for image, lesion, dx in SKIN_ROWS]
    (root / "HAM10000_metadata.csv").write_text(header + "".join(lines))
    names = [f"{image}.jpg" for image, _, _ in SKIN_ROWS]
    write_images(root / "HAM10000_images_part_1", names[:10])
    write_images(root / "HAM10000_images_part_2", names[10:], first=10)
    return root


def write_isic2018(root: Path) -> Path:
    """Write the same images in the challenge's layout."""
    root.mkdir(parents=True, exist_ok=True)
    columns = ("MEL", "NV", "BCC", "AKIEC", "BKL", "DF", "VASC")
    lines = [",".join(("image", *columns))]
    lines += [
        ",".join((image, *("1.0" if name.lower() == dx else "0.0" for name in columns)))
        for image, _, dx in SKIN_ROWS
    ]
    name = "ISIC2018_Task3_Training_GroundTruth"
    (root / name).mkdir()
    (root / name / f"{name}.csv").write_text("\n".join(lines) + "\n")
    groupings = ["image,lesion_id,diagnosis_confirm_type"]
    groupings += [f"{image},{lesion},histopathology" for image, lesion, _ in reversed(SKIN_ROWS)]
    (root / "ISIC2018_Task3_Training_LesionGroupings.csv").write_text("\n".join(groupings))
    write_images(root / "ISIC2018_Task3_Training_Input", [f"{row[0]}.jpg" for row in SKIN_ROWS])
    return root


# image set -> image -> the objects in it and whether they are difficult
VOC_IMAGES: dict[str, dict[str, tuple[tuple[str, bool], ...]]] = {
    "trainval": {
        "000005": (("chair", False), ("chair", True), ("person", True)),
        "000007": (("car", False),),
        "000009": (),
    },
    "test": {"000001": (("dog", False), ("person", False)), "000002": (("train", True),)},
}


def write_pascal_voc(root: Path, classes: Iterable[str], *, year: int = 2007) -> Path:
    """Write a devkit with annotations and, for ``classes``, the lists of the image sets."""
    home = root / "VOCdevkit" / f"VOC{year}"
    lists = home / "ImageSets" / "Main"
    lists.mkdir(parents=True)
    (home / "Annotations").mkdir()
    for image_set, images in VOC_IMAGES.items():
        (lists / f"{image_set}.txt").write_text("".join(f"{image}\n" for image in images))
        for name in classes:
            states = {image: _voc_state(name, objects) for image, objects in images.items()}
            lines = [f"{image} {state:2d}\n" for image, state in states.items()]
            (lists / f"{name}_{image_set}.txt").write_text("".join(lines))
        for image, objects in images.items():
            (home / "Annotations" / f"{image}.xml").write_text(_voc_annotation(image, objects))
            write_images(home / "JPEGImages", [f"{image}.jpg"], first=int(image))
    return root


def _voc_state(name: str, objects: tuple[tuple[str, bool], ...]) -> int:
    difficult = [is_difficult for each, is_difficult in objects if each == name]
    return -1 if not difficult else 0 if all(difficult) else 1


def _voc_annotation(image: str, objects: tuple[tuple[str, bool], ...]) -> str:
    entries = [
        f"<object><name>{name}</name><pose>Rear</pose><difficult>{int(is_difficult)}</difficult>"
        "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>5</xmax><ymax>5</ymax></bndbox></object>"
        for name, is_difficult in objects
    ]
    start = f"<annotation><folder>VOC2007</folder><filename>{image}.jpg</filename>"
    return start + "".join(entries) + "</annotation>\n"


COCO_CATEGORIES = ({"id": 18, "name": "dog"}, {"id": 1, "name": "person"}, {"id": 3, "name": "car"})


def write_ms_coco(root: Path, *, year: int = 2014) -> Path:
    """Write three train and two val images; the first has two people and a crowd of dogs."""
    prefix = {2014: "COCO_{}2014_", 2017: ""}[year]
    objects = {"train": ((9, 1), (9, 1), (9, 18), (25, 3)), "val": ((42, 18),)}
    images = {"train": (9, 25, 30), "val": (42, 73)}
    (root / "annotations").mkdir(parents=True)
    for split, numbers in images.items():
        names = [f"{prefix.format(split)}{number:012d}.jpg" for number in numbers]
        document = {
            "info": {"year": year},
            "images": [
                {"id": number, "file_name": name, "width": 8, "height": 8}
                for number, name in zip(numbers, names)
            ],
            "categories": list(COCO_CATEGORIES),
            "annotations": [
                {
                    "id": number,
                    "image_id": image,
                    "category_id": category,
                    "iscrowd": int(category == 18),
                    "segmentation": [[1.0, 2.0, 3.0, 4.0]],
                }
                for number, (image, category) in enumerate(objects[split])
            ],
        }
        path = root / "annotations" / f"instances_{split}{year}.json"
        path.write_text(json.dumps(document))
        write_images(root / f"{split}{year}", names, first=0 if split == "train" else 3)
    return root


FLAIR_ROWS = (  # image, user, split, coarse, fine
    ("101", "7@N00", "train", ["animal"], ["cat", "dog"]),
    ("102", "7@N00", "train", ["animal", "food"], ["bread", "dog"]),
    ("103", "8@N01", "train", ["structure"], ["structure"]),
    ("104", "9@N02", "val", ["food"], ["waffle"]),
    ("105", "6@N03", "test", ["food"], ["bread"]),
    ("106", "6@N03", "test", ["animal"], ["cat"]),
)


def write_flair(root: Path) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    entries = [
        {
            "user_id": user,
            "image_id": image,
            "labels": coarse,
            "partition": split,
            "fine_grained_labels": fine,
        }
        for image, user, split, coarse, fine in FLAIR_ROWS
    ]
    (root / "labels_and_metadata.json").write_text(json.dumps(entries))
    write_images(root / "small_images", [f"{row[0]}.jpg" for row in FLAIR_ROWS])
    return root


ICH_SLICES = {  # slice -> its patient and sub-types
    "ID_000012eaf": ("ID_p1", ()),
    "ID_000039fa0": ("ID_p1", ("subdural",)),
    "ID_00005679d": ("ID_p2", ("epidural", "subdural")),
    "ID_00008ce3c": ("ID_p2", ()),
    "ID_0000950d7": ("ID_p3", ("intraventricular",)),
    "ID_0000aee4b": ("ID_p4", ()),
}
ICH_DAMAGED = "ID_6431af929"


def write_ich_table(root: Path) -> Path:
    """Write six rows per slice; the second slice's rows are repeated, as in the published file."""
    kinds = ("epidural", "intraparenchymal", "intraventricular", "subarachnoid", "subdural", "any")
    lines = ["ID,Label"]
    for name in (*ICH_SLICES, ICH_DAMAGED, "ID_000039fa0"):
        found = ICH_SLICES.get(name, ("", ()))[1]
        present = {*found, "any"} if found else set()
        lines += [f"{name}_{kind},{int(kind in present)}" for kind in kinds]
    root.mkdir(parents=True, exist_ok=True)
    (root / "stage_2_train.csv").write_text("\n".join(lines) + "\n")
    return root


def write_rsna_ich(root: Path) -> Path:
    """Write DICOM slices of one value each: slice i is 10 * i Hounsfield units everywhere."""
    write_ich_table(root)
    (root / "stage_2_train").mkdir()
    for number, (name, (patient, _)) in enumerate(ICH_SLICES.items()):
        values = np.full((8, 8), 10 * number + 1024, np.int16)
        write_slice(root / "stage_2_train" / f"{name}.dcm", values, PatientID=patient)
    (root / "stage_2_train" / f"{ICH_DAMAGED}.dcm").write_bytes(b"cut short")
    return root


def write_slice(path: Path, values: np.ndarray, **elements: Any) -> Path:
    """Write a CT slice of stored values, which are 1024 above the Hounsfield units."""
    scale = {"RescaleSlope": 1, "RescaleIntercept": -1024}
    return write_dicom(path, values, CT_IMAGE, **scale | elements)
