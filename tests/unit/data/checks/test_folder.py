"""The check of a folder: all problems at once, and warnings."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.folder_files import make_folder, noise, write_csv, write_grey

from fedquilt.data.checks.folder import CheckResult, check
from fedquilt.data.sources.folder.load import Folder

ROWS = "image,patient,site,A,B\n" + "".join(
    f"{i}.png,p{i // 2},{'MN'[i % 4 // 2]},{i % 2},{i % 3 % 2}\n" for i in range(60)
)
USUAL = {"size": 4, "patient_column": "patient", "site_column": "site"}


def checked(root: Path, text: str = ROWS, **settings: object) -> CheckResult:
    images, labels = make_folder(root, text)
    return check(Folder(folder=str(images), labels=str(labels), **(USUAL | settings)))  # type: ignore[arg-type]


def test_sound_data(tmp_path: Path) -> None:
    result = checked(tmp_path)
    assert result.problems == ()
    assert result.warnings == ()
    assert result.summary is not None
    assert result.summary.images == 60
    assert result.summary.patients == 30
    assert result.summary.depths == {"8-bit": 60}
    assert (result.summary.train or 0) + (result.summary.test or 0) == 60
    assert result.annotation_map is not None
    assert result.annotation_map.images == (30, 30)
    assert "60 images, 2 classes, 2 sites, 30 patients" in result.summary.sentence()
    assert json.loads(json.dumps(result.to_dict()))["ok"] is True


def test_problems_of_images_and_labels_are_reported_together(tmp_path: Path) -> None:
    images, labels = make_folder(tmp_path, ROWS)
    (images / "1.png").write_bytes(b"broken")
    (images / "2.png").unlink()
    write_csv(labels, ROWS.replace("5.png,p2,M,1,0", "5.png,p2,M,7,0"))
    source = Folder(folder=str(images), labels=str(labels), **USUAL)  # type: ignore[arg-type]
    content = check(source).to_dict()
    kinds = {problem["kind"]: problem for problem in content["problems"]}  # type: ignore[attr-defined]
    assert kinds["unreadable-image"]["places"] == [
        "line 3: not a PNG, JPEG, TIFF or DICOM file: '1.png'"
    ]
    assert kinds["missing-image"]["places"] == ["line 4: no such file: '2.png'"]
    assert kinds["bad-value"]["places"] == ["line 7, column 'A': '7'"]
    assert content["annotation_map"] is not None
    unopened = {problem.kind.name for problem in check(source, open_images=False).problems}
    assert unopened == {"missing-image", "bad-value"}


def test_a_site_without_usable_images_is_a_problem(tmp_path: Path) -> None:
    images, labels = make_folder(tmp_path, ROWS + "x.png,px,Lost,1,1\n")
    (images / "x.png").unlink()
    result = check(Folder(folder=str(images), labels=str(labels), **USUAL))  # type: ignore[arg-type]
    found = {problem.kind.name: problem.lines(private=True) for problem in result.problems}
    assert found["site-without-image"] == ["site 'Lost'"]


def test_files_without_rows_and_mixed_depths_are_warned_of(tmp_path: Path) -> None:
    images, labels = make_folder(tmp_path, ROWS)
    write_grey(images / "below" / "extra.PNG", 3)
    for name, top in (("0.png", 4095), ("1.png", 65535)):
        Image.fromarray(np.full((4, 4), top, dtype=np.uint16)).save(images / name)
    result = check(Folder(folder=str(images), labels=str(labels), **USUAL))  # type: ignore[arg-type]
    text = "\n".join(result.warnings)
    assert "1 image files in the folder have no row in the label file" in text
    assert "1 grey images have no value above 4095 and are read as 12-bit, 1 as 16-bit" in text
    assert "set window" in text


def test_patients_are_warned_of_by_count(tmp_path: Path) -> None:
    text = "\n".join(
        checked(tmp_path / "a", patient_column=None, ignore_columns=("patient",)).warnings
    )
    assert "no patient column was named" in text
    shared = ROWS.replace("2.png,p1,N", "2.png,p0,N")  # row 0 has p0 at site M
    text = "\n".join(checked(tmp_path / "b", shared).warnings)
    assert "1 patient has images at more than one site" in text
    assert "p0" not in text


def test_a_class_or_site_missing_from_a_split_is_warned_of(tmp_path: Path) -> None:
    text = "image,site,split,A\n" + "".join(
        f"{i}.png,{'M' if i < 30 else 'N'},{'train' if i < 30 else 'test'},{int(i < 15)}\n"
        for i in range(60)
    )
    result = checked(tmp_path, text, split_column="split", patient_column=None)
    warned = "\n".join(result.warnings)
    assert "the test split has no positive of 'A'" in warned
    assert "the train split has no image of site 'N'" in warned
    assert "the test split has no image of site 'M'" in warned


@pytest.mark.parametrize("text", ["", "image,A\n", "A,B\n1,0\n"])
def test_unusable_files_are_problems_not_tracebacks(tmp_path: Path, text: str) -> None:
    (tmp_path / "images").mkdir()
    labels = write_csv(tmp_path / "labels.csv", text)
    result = check(Folder(folder=str(tmp_path / "images"), labels=str(labels)))
    assert result.problems
    assert result.summary is None


def mutate(raw: bytes, source: random.Random) -> bytes:
    """Apply one to three of: truncate, change a byte, repeat a piece, insert an odd piece."""
    pieces = [
        b"..",
        b"/",
        b"\\",
        b";",
        b"\t",
        b'"',
        b"\0",
        b"\xff\xfe",
        b"-1",
        b"2",
        b"nan",
        b"\n",
        b",",
    ]
    for _ in range(source.randint(1, 3)):
        place = source.randrange(len(raw) + 1)
        raw = source.choice(
            [
                raw[:place],
                raw[:place] + bytes([source.randrange(256)]) + raw[place + 1 :],
                raw[:place] + raw[max(0, place - 20) : place] + raw[place:],
                raw[:place] + source.choice(pieces) + raw[place:],
            ]
        )
    return raw


def test_malformed_label_files_never_end_in_a_traceback(tmp_path: Path) -> None:
    images, labels = make_folder(tmp_path, "image,A\na.png,1\nb.png,0\nc.png,\n")
    source = random.Random(0)
    good, rejected = labels.read_bytes(), 0
    for _ in range(300):
        labels.write_bytes(mutate(good, source))
        problems = check(Folder(folder=str(images), labels=str(labels), size=4)).problems
        rejected += bool(problems)
        assert all(problem.kind.advice for problem in problems)
    assert rejected > 150


def test_malformed_images_never_end_in_a_traceback(tmp_path: Path) -> None:
    source = random.Random(0)
    picture = Image.fromarray(noise((24, 24, 3)))
    names = [f"{place}.{ending}" for place in range(30) for ending in ("png", "jpg", "tif")]
    images, labels = make_folder(tmp_path, "image,A\n" + "".join(f"{name},1\n" for name in names))
    for name in names:
        picture.save(images / name)
        (images / name).write_bytes(mutate((images / name).read_bytes(), source))
    result = check(Folder(folder=str(images), labels=str(labels), size=4))
    assert sum(problem.count for problem in result.problems) > 45
    assert {problem.kind.name for problem in result.problems} <= {
        "unreadable-image",
        "unsupported-image",
        "too-large-image",
    }
