"""PASCAL VOC from its devkit's lists, and from its annotations."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from support.published_folders import write_pascal_voc

from fedquilt.core.errors import UserError
from fedquilt.data.sources.pascal_voc.labels import OBJECTS
from fedquilt.data.sources.pascal_voc.load import PascalVoc

LISTS = Path("VOCdevkit") / "VOC2007" / "ImageSets" / "Main"


def make(root: Path, **settings: object) -> PascalVoc:
    return PascalVoc(**({"folder": str(root), "size": 4} | settings))  # type: ignore[arg-type]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_pascal_voc(tmp_path / "voc", OBJECTS)


def entries(values: np.ndarray) -> list[set[str]]:
    return [{OBJECTS[column] for column in np.flatnonzero(row)} for row in values]


def test_difficult_objects_are_unknown(root: Path, tmp_path: Path) -> None:
    splits = make(root).load(tmp_path / "cache")
    assert splits.train.ids == ("000005", "000007", "000009")
    assert splits.test.ids == ("000001", "000002")
    # One chair of 000005 is easy, so chair is present; its person is difficult, so not known.
    assert entries(splits.train.labels.numpy()) == [{"chair"}, {"car"}, set()]
    assert entries(~splits.train.known.numpy()) == [{"person"}, set(), set()]
    assert entries(splits.test.labels.numpy()) == [{"dog", "person"}, set()]
    assert entries(~splits.test.known.numpy()) == [set(), {"train"}]
    assert splits.train.classes == OBJECTS
    assert len(OBJECTS) == 20
    greys = splits.train.images[:, 0, 0, 0].tolist()
    assert greys == pytest.approx([50, 70, 90], abs=1)  # JPEG may be off by one


def test_annotations_agree_with_the_lists(root: Path, tmp_path: Path) -> None:
    bare = write_pascal_voc(tmp_path / "bare", ())
    assert not list((bare / LISTS).glob("*_trainval.txt"))
    listed, annotated = make(root).labels()[0], make(bare).labels()[0]
    assert listed.ids == annotated.ids
    np.testing.assert_array_equal(listed.labels, annotated.labels)
    assert listed.known is not None
    np.testing.assert_array_equal(listed.known, annotated.known)


@pytest.mark.parametrize(("difficult", "person"), [("present", 1), ("absent", 0)])
def test_difficult_objects_can_be_filled_in(root: Path, difficult: str, person: int) -> None:
    table, _ = make(root, difficult=difficult).labels()
    assert table.known is None
    assert table.labels[0, OBJECTS.index("person")] == person
    assert table.labels[0, OBJECTS.index("chair")] == 1
    assert table.labels[2].sum() == 0


def test_folder_may_be_the_devkit_or_the_year(root: Path) -> None:
    table, _ = make(root).labels()
    for inner in (root / "VOCdevkit", root / "VOCdevkit" / "VOC2007"):
        assert make(inner).labels()[0].ids == table.ids


@pytest.mark.parametrize("names", [("trainval", "test [1]"), ("b", "a")])
@pytest.mark.parametrize("classes", [OBJECTS, ()])
def test_archives_may_be_unpacked_in_a_folder_each(
    tmp_path: Path, names: tuple[str, str], classes: tuple[str, ...]
) -> None:
    whole = write_pascal_voc(tmp_path / "whole", classes)
    expected = make(whole).load(tmp_path / "cache of one")
    apart, year = tmp_path / "apart", Path("VOCdevkit") / "VOC2007"
    for name, kept, images in zip(names, ("trainval", "test"), (expected.train, expected.test)):
        shutil.copytree(whole, apart / name)
        for path in (apart / name / LISTS).glob("*.txt"):
            if not path.stem.endswith(kept):
                path.unlink()
        for path in (apart / name / year / "JPEGImages").iterdir():
            if path.stem not in images.ids:
                path.unlink()
    found = make(apart).load(tmp_path / "cache of two")
    for one, other in ((found.train, expected.train), (found.test, expected.test)):
        assert one.ids == other.ids
        assert torch.equal(one.labels, other.labels)
        assert torch.equal(one.images, other.images)
    (apart / names[0] / LISTS / "test.txt").write_text("000001\n")
    with pytest.raises(UserError, match=r"test\.txt differs in .* and in .*; remove the folder"):
        make(apart).labels()


def test_year_2012_is_split_by_train_and_val(tmp_path: Path) -> None:
    root = write_pascal_voc(tmp_path, OBJECTS, year=2012)
    with pytest.raises(UserError, match=r"holds no train\.txt"):
        make(root, year=2012).labels()
    _, splits = make(root, year=2012, train="trainval", test="test").labels()
    assert (len(splits.train), len(splits.test)) == (3, 2)
    with pytest.raises(UserError, match="3 images are in both the train and the test split"):
        make(root, year=2012, train="trainval", test="trainval").labels()
    with pytest.raises(UserError, match="holds no VOC2007 or VOCdevkit/VOC2007"):
        make(root).labels()


def test_missing_files_are_named(root: Path, tmp_path: Path) -> None:
    (root / "VOCdevkit" / "VOC2007" / "JPEGImages" / "000009.jpg").unlink()
    with pytest.raises(UserError, match=r"no image 000009.*robots\.ox\.ac\.uk.*1 of 5"):
        make(root).load(tmp_path / "cache")
    (root / LISTS / "sofa_test.txt").unlink()
    with pytest.raises(UserError, match=r"holds no sofa_test\.txt"):
        make(root).labels()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("000005 1\n000007 2\n000009 -1\n", "says '2'"),
        ("000005 1\n000007\n", "has a name without a number"),
        ("000005 1\n000007 1\n", r"lacks 1 image of trainval\.txt, such as 000009"),
    ],
)
def test_wrong_lists_are_named(root: Path, text: str, found: str) -> None:
    (root / LISTS / "cow_trainval.txt").write_text(text)
    with pytest.raises(UserError, match=rf"cow_trainval\.txt {found}"):
        make(root).labels()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('<!DOCTYPE a [<!ENTITY b "c">]><annotation/>', "declares a document type"),
        ("<annotation>", "is not XML"),
        (
            "<annotation><object><name>cta</name></object></annotation>",
            "an object 'cta'; did you mean 'cat'",
        ),
    ],
)
def test_wrong_annotations_are_named(tmp_path: Path, text: str, found: str) -> None:
    root = write_pascal_voc(tmp_path, ())
    (root / "VOCdevkit" / "VOC2007" / "Annotations" / "000007.xml").write_text(text)
    with pytest.raises(UserError, match=rf"000007\.xml.*{found}"):
        make(root).labels()


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"year": 2010}, "year is 2010; expected 2007 or 2012"),
        ({"train": "trainvall"}, "did you mean 'trainval'"),
        ({"difficult": "unknwon"}, "did you mean 'unknown'"),
        ({"fit": "squish"}, "did you mean 'squash'"),
        ({"size": -1}, "size is -1"),
    ],
)
def test_settings_are_checked(settings: dict[str, object], hint: str) -> None:
    with pytest.raises(UserError, match=hint):
        make(Path("x"), **settings)


def test_the_folder_of_the_year_may_be_a_dot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(write_pascal_voc(tmp_path, OBJECTS) / "VOCdevkit" / "VOC2007")
    assert len(PascalVoc(folder=".", size=4).load(tmp_path / "cache").train) == 3
