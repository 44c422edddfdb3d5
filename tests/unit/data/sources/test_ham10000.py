"""HAM10000 from Dataverse's files and from those of the ISIC 2018 challenge."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from support.published_folders import SKIN_ROWS, write_ham10000, write_isic2018

from fedquilt.core.errors import UserError
from fedquilt.data.sources.ham10000.load import Ham10000

CLASSES = ("MEL", "NV", "BCC", "AKIEC", "BKL", "DF", "VASC")


def make(root: Path, **settings: object) -> Ham10000:
    return Ham10000(**({"folder": str(root), "size": 4} | settings))  # type: ignore[arg-type]


def test_every_image_has_its_one_diagnosis(tmp_path: Path) -> None:
    table = make(write_ham10000(tmp_path)).labels()
    assert table.classes == CLASSES
    assert table.ids == tuple(row[0] for row in SKIN_ROWS)
    assert table.groups == tuple(row[1] for row in SKIN_ROWS)
    assert (table.labels.sum(1) == 1).all()
    assert [CLASSES[column].lower() for column in table.labels.argmax(1)] == [
        row[2] for row in SKIN_ROWS
    ]


def test_both_layouts_give_the_same_labels(tmp_path: Path) -> None:
    first = make(write_ham10000(tmp_path / "ham")).load(tmp_path / "one")
    second = make(write_isic2018(tmp_path / "isic")).load(tmp_path / "two")
    for one, two in ((first.train, second.train), (first.test, second.test)):
        assert (one.ids, one.groups, one.classes) == (two.ids, two.groups, two.classes)
        assert torch.equal(one.labels, two.labels)
        assert torch.equal(one.images, two.images)


def test_tab_separated_metadata(tmp_path: Path) -> None:
    root = write_ham10000(tmp_path)
    plain = make(root).labels()
    path = root / "HAM10000_metadata.csv"
    (root / "HAM10000_metadata.tab").write_text(path.read_text().replace(",", "\t"))
    path.unlink()
    np.testing.assert_array_equal(make(root).labels().labels, plain.labels)


def test_lesions_stay_in_one_split_and_validation_is_left_out(tmp_path: Path) -> None:
    splits = make(write_ham10000(tmp_path / "ham"), test_share=0.4).load(tmp_path / "cache")
    train, test = set(splits.train.groups or ()), set(splits.test.groups or ())
    assert not train & test
    # The lesions have two photographs each; an eighth of the rest, rounded up, is left out.
    rest = 20 - len(splits.test)
    assert len(splits.train) == rest - -(-rest // 8)
    assert splits.train.known.all()


def test_split_by_image_has_exact_sizes(tmp_path: Path) -> None:
    source = make(write_ham10000(tmp_path), split="image")
    splits = source.split_indices(source.labels())
    assert (len(splits.train), len(splits.test)) == (14, 4)  # 7 : 1 : 2 of 20
    assert not set(splits.train.tolist()) & set(splits.test.tolist())


def test_split_by_lesion_needs_lesions(tmp_path: Path) -> None:
    root = write_isic2018(tmp_path / "isic")
    (root / "ISIC2018_Task3_Training_LesionGroupings.csv").unlink()
    with pytest.raises(UserError, match=r'LesionGroupings\.csv.*split = "image"'):
        make(root).load(tmp_path / "cache")
    assert make(root, split="image").load(tmp_path / "cache").train.groups is None


def test_missing_and_wrong_files_are_named(tmp_path: Path) -> None:
    root = write_ham10000(tmp_path / "ham")
    (root / "HAM10000_images_part_2" / "ISIC_0024320.jpg").unlink()
    with pytest.raises(UserError, match=r"no image ISIC_0024320.*Dataverse.*1 of 20"):
        make(root, validation_share=0.0).load(tmp_path / "cache")
    path = root / "HAM10000_metadata.csv"
    path.write_text(path.read_text().replace(",vasc,", ",vask,"))
    with pytest.raises(UserError, match="diagnosis 'vask' in line 14; did you mean 'vasc'"):
        make(root).labels()
    path.unlink()
    with pytest.raises(UserError, match=r"holds no HAM10000_metadata\.csv or "):
        make(root).labels()


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        (
            "ISIC_0024306,0.0,1.0",
            "ISIC_0024306,1.0,1.0",
            "not have exactly one diagnosis in line 2",
        ),
        (
            "ISIC_0024306,0.0,1.0",
            "ISIC_0024306,0.5,0.5",
            "not have exactly one diagnosis in line 2",
        ),
        ("ISIC_0024306,0.0,1.0", "ISIC_0024306,,1.0", "not a number"),
    ],
)
def test_ground_truth_is_one_hot(tmp_path: Path, old: str, new: str, found: str) -> None:
    root = write_isic2018(tmp_path)
    name = "ISIC2018_Task3_Training_GroundTruth"
    path = root / name / f"{name}.csv"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(UserError, match=found):
        make(root).labels()


def test_groupings_must_cover_the_ground_truth(tmp_path: Path) -> None:
    root = write_isic2018(tmp_path)
    path = root / "ISIC2018_Task3_Training_LesionGroupings.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:-1]))
    with pytest.raises(UserError, match="lacks 1 image of the ground truth, such as ISIC_0024306"):
        make(root).labels()


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"split": "lesions"}, "did you mean 'lesion'"),
        ({"fit": "padd"}, "did you mean 'pad'"),
        ({"test_share": 1.0}, "test_share is 1.0"),
        ({"validation_share": -0.1}, "validation_share is -0.1"),
        ({"size": 0}, "size is 0"),
    ],
)
def test_settings_are_checked(settings: dict[str, object], hint: str) -> None:
    with pytest.raises(UserError, match=hint):
        make(Path("x"), **settings)
