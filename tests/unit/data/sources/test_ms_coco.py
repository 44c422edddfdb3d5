"""MS-COCO from its instance annotations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.published_folders import write_ms_coco

from fedquilt.core.errors import UserError
from fedquilt.data.sources.ms_coco.load import MsCoco


def make(root: Path, **settings: object) -> MsCoco:
    return MsCoco(**({"folder": str(root), "size": 4} | settings))  # type: ignore[arg-type]


@pytest.mark.parametrize(("year", "first"), [(2014, "COCO_train2014_"), (2017, "")])
def test_objects_become_labels(tmp_path: Path, year: int, first: str) -> None:
    root = write_ms_coco(tmp_path / "coco", year=year)
    splits = make(root, year=year).load(tmp_path / "cache")
    assert splits.train.ids[0] == f"{first}000000000009"
    assert splits.train.classes == ("person", "car", "dog")  # by number: 1, 3, 18
    # Two people count once, a crowd of dogs counts, and the third image has nothing.
    assert splits.train.labels.tolist() == [[1, 0, 1], [0, 1, 0], [0, 0, 0]]
    assert splits.test.labels.tolist() == [[0, 0, 1], [0, 0, 0]]
    assert splits.train.known.all()
    assert splits.train.images[:, 1, 2, 2].tolist() == pytest.approx([0, 10, 20], abs=1)
    assert splits.test.images[:, 1, 2, 2].tolist() == pytest.approx([30, 40], abs=1)


def test_images_may_be_in_a_folder_images(tmp_path: Path) -> None:
    root = write_ms_coco(tmp_path / "coco")
    (root / "images").mkdir()
    for split in ("train2014", "val2014"):
        (root / split).rename(root / "images" / split)
    assert len(make(root).load(tmp_path / "cache").train) == 3


def test_missing_files_are_named(tmp_path: Path) -> None:
    root = write_ms_coco(tmp_path / "coco")
    with pytest.raises(UserError, match=r"no annotations/instances_train2017\.json or "):
        make(root, year=2017).labels()
    (root / "val2014" / "COCO_val2014_000000000073.jpg").unlink()
    with pytest.raises(UserError, match=r"no image COCO_val2014_0+73.*cocodataset\.org.*1 of 5"):
        make(root).load(tmp_path / "cache")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda document: document.pop("categories"), "unexpected layout .KeyError: 'categories'"),
        (lambda document: document["images"].pop(0), "unexpected layout .KeyError: 9"),
        (lambda document: document["annotations"].append(3), "unexpected layout .TypeError"),
        (lambda document: document["categories"].pop(), "unexpected layout .KeyError: 3"),
    ],
)
def test_wrong_content_is_named(tmp_path: Path, change: object, found: str) -> None:
    root = write_ms_coco(tmp_path)
    path = root / "annotations" / "instances_train2014.json"
    document = json.loads(path.read_text())
    change(document)  # type: ignore[operator]
    path.write_text(json.dumps(document))
    with pytest.raises(UserError, match=rf"instances_train2014\.json has an entry with an {found}"):
        make(root).labels()


@pytest.mark.parametrize(
    ("raw", "found"), [(b"{", "is not JSON"), (b"[]", "holds a list"), (b"\xff\xff", "is not JSON")]
)
def test_wrong_files_are_named(tmp_path: Path, raw: bytes, found: str) -> None:
    root = write_ms_coco(tmp_path)
    (root / "annotations" / "instances_val2014.json").write_bytes(raw)
    with pytest.raises(UserError, match=rf"instances_val2014\.json {found}"):
        make(root).labels()


def test_files_with_different_classes_are_refused(tmp_path: Path) -> None:
    root = write_ms_coco(tmp_path)
    path = root / "annotations" / "instances_val2014.json"
    path.write_text(path.read_text().replace('"car"', '"lorry"'))
    with pytest.raises(UserError, match="files with different classes"):
        make(root).labels()


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"year": 2015}, "year is 2015; expected 2014 or 2017"),
        ({"fit": "corp"}, "did you mean 'crop'"),
        ({"size": 0}, "size is 0"),
    ],
)
def test_settings_are_checked(settings: dict[str, object], hint: str) -> None:
    with pytest.raises(UserError, match=hint):
        make(Path("x"), **settings)
