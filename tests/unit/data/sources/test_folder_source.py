"""From a folder and a label file to train and test splits."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from support.folder_files import make_folder, write_csv

from fedquilt.core.errors import UserError
from fedquilt.data.sources.folder.load import Folder

ROWS = "image,patient,site,A,B\n" + "".join(
    f"{i}.png,p{i // 2},{'MN'[i % 4 // 2]},{i % 2},{'' if i % 4 < 2 else 1}\n" for i in range(20)
)


def make_source(root: Path, text: str = ROWS, **settings: object) -> Folder:
    images, labels = make_folder(root, text)
    usual = {"size": 4, "channels": 1, "patient_column": "patient", "site_column": "site"}
    return Folder(folder=str(images), labels=str(labels), **(usual | settings))  # type: ignore[arg-type]


def test_rows_images_and_labels_belong_together(tmp_path: Path) -> None:
    splits = make_source(tmp_path).load(tmp_path / "cache")
    assert len(splits.train) + len(splits.test) == 20
    assert splits.train.classes == ("A", "B")
    for split in (splits.train, splits.test):
        for row, name in enumerate(split.ids):
            number = int(name.removesuffix(".png"))
            assert (split.images[row] == number + 2).all()  # as grey as its line
            assert split.labels[row, 0] == number % 2
            assert split.known[row].tolist() == [True, number % 4 >= 2]
            assert split.groups is not None
            assert split.groups[row] == f"p{number // 2}"
            assert split.sites is not None
            assert split.sites[row] == "MN"[number % 4 // 2]
    assert not set(splits.train.groups or ()) & set(splits.test.groups or ())


def test_both_splits_are_views_of_one_mapping(tmp_path: Path) -> None:
    splits = make_source(tmp_path).load(tmp_path / "cache")
    train, test = splits.train.images, splits.test.images
    assert test.untyped_storage().data_ptr() == train.untyped_storage().data_ptr()
    assert test.data_ptr() == train.data_ptr() + train.numel()
    (file,) = (tmp_path / "cache").glob("*.u8")
    maps = Path("/proc/self/maps")
    if maps.exists():
        assert file.name in maps.read_text()  # the bytes are the file's, not a copy


def test_split_column(tmp_path: Path) -> None:
    text = "image,split,A\na.png,test,1\nb.png,train,0\nc.png,val,1\n"
    source = make_source(
        tmp_path, text, split_column="split", patient_column=None, site_column=None
    )
    splits = source.load(tmp_path / "cache")
    assert splits.train.ids == ("b.png", "c.png")
    assert splits.is_validation is not None
    assert splits.is_validation.tolist() == [False, True]
    assert splits.test.ids == ("a.png",)
    assert splits.train.groups is None
    assert splits.train.sites is None


def test_loading_twice_gives_the_same(tmp_path: Path) -> None:
    source = make_source(tmp_path)
    first, second = source.load(tmp_path / "one"), source.load(tmp_path / "two")
    assert first.train.ids == second.train.ids
    assert torch.equal(first.train.images, second.train.images)


def test_label_names_file(tmp_path: Path) -> None:
    names = write_csv(tmp_path / "names.toml", '[labels]\nB = "Hernia"\n')
    splits = make_source(tmp_path, label_names=str(names)).load(tmp_path / "cache")
    assert splits.train.classes == ("A", "Hernia")


def test_problems_of_labels_and_files_come_together_and_name_no_patient(tmp_path: Path) -> None:
    source = make_source(tmp_path)
    (tmp_path / "images" / "3.png").unlink()
    write_csv(tmp_path / "labels.csv", ROWS.replace("7.png,p3,N,1,1", "../7.png,p3,N,2,1"))
    with pytest.raises(UserError, match="3 problems; nothing was loaded") as caught:
        source.load(tmp_path / "cache")
    message = str(caught.value)
    assert "line 9, column 'A': '2'" in message
    assert "line 5: no such file" in message
    assert "line 9: not a name inside the folder" in message
    assert "fedquilt data check" in message
    assert ".png" not in message
    assert "p3" not in message
    assert not (tmp_path / "cache").exists()


def test_missing_images_get_a_hint(tmp_path: Path) -> None:
    images, labels = make_folder(tmp_path, "image,A\nx.png,1\ny.png,0\n")
    with pytest.raises(UserError, match="in the subfolder 'images': give that"):
        Folder(folder=str(images.parent), labels=str(labels)).load(tmp_path / "cache")
    write_csv(labels, "image,A\nx,1\ny,0\n")
    with pytest.raises(UserError, match="one with the ending"):
        Folder(folder=str(images), labels=str(labels)).load(tmp_path / "cache")
    with pytest.raises(UserError, match="the image folder does not exist"):
        Folder(folder=str(tmp_path / "none"), labels=str(labels)).load(tmp_path / "cache")


def test_one_patient_cannot_be_split(tmp_path: Path) -> None:
    text = "image,patient,site,A\na.png,p,M,1\nb.png,p,M,0\n"
    with pytest.raises(UserError, match="1 patient") as caught:
        make_source(tmp_path, text).load(tmp_path / "cache")
    assert "at least two are needed" in str(caught.value)


def test_notices_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="fedquilt")
    make_source(tmp_path, ROWS.replace(",p0,M,1,", ",p0,M,yes,")).load(tmp_path / "cache")
    assert "'yes' were read as 1" in caplog.text
    assert ".png" not in caplog.text


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"fit": "cropp"}, "fit is 'cropp'; did you mean 'crop'?"),
        ({"uncertain": "posit"}, "did you mean 'positive'?"),
        ({"size": 0}, "size is 0; expected a number of pixels"),
        ({"channels": 2}, r"channels is 2; expected 1 \(grey\) or 3"),
        ({"test_share": 1.0}, "test_share is 1.0; expected a share between 0 and 1"),
        ({"window": (5.0, 5.0)}, "expected two numbers, low then high"),
        ({"classes": ("A", "A")}, "expected distinct class names"),
        ({"classes": ()}, "expected distinct class names"),
    ],
)
def test_settings_are_checked(settings: dict[str, object], hint: str) -> None:
    with pytest.raises(UserError, match=hint.replace("?", r"\?")):
        Folder(folder="x", labels="y", **settings)  # type: ignore[arg-type]


@pytest.mark.shared
def test_real_photographs(tmp_path: Path, shared_folder: Path) -> None:
    scenes = shared_folder / "data" / "miml_scenes"
    source = Folder(folder=str(scenes / "images"), labels=str(scenes / "labels.csv"), size=32)
    splits = source.load(tmp_path)
    assert splits.train.images.shape[1:] == (3, 32, 32)
    assert len(splits.train) + len(splits.test) == 2000
    assert splits.train.known.all()
    whole = splits.train.labels.sum(0, dtype=torch.int64) + splits.test.labels.sum(0)
    shares = splits.test.labels.sum(0) / whole
    assert shares.tolist() == pytest.approx([0.2] * 5, abs=0.01)
