from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.packed_files import write_medmnist

from fedquilt.core.errors import UserError
from fedquilt.data.sources.medmnist import files
from fedquilt.data.sources.medmnist.load import MedMnist
from fedquilt.data.sources.medmnist.table import TASKS


def column(*classes: int) -> np.ndarray:
    return np.array(classes, np.uint8)[:, None]


def test_multi_label_images_keep_their_labels(tmp_path: Path) -> None:
    labels = {
        split: np.random.default_rng(count).integers(0, 2, (count, 14), dtype=np.uint8)
        for split, count in (("train", 5), ("val", 2), ("test", 3))
    }
    images = write_medmnist(tmp_path / "chestmnist.npz", labels)
    splits = MedMnist(folder=str(tmp_path), flag="chestmnist").load(tmp_path / "cache")
    assert splits.train.images.shape == (7, 1, 28, 28)
    both = np.concatenate([images["train"], images["val"]])
    assert np.array_equal(splits.train.images[:, 0].numpy(), both)
    assert np.array_equal(splits.test.images[:, 0].numpy(), images["test"])
    expected = np.concatenate([labels["train"], labels["val"]])
    assert np.array_equal(splits.train.labels.numpy(), expected)
    assert np.array_equal(splits.test.labels.numpy(), labels["test"])
    assert splits.train.known.all()
    assert splits.train.classes[13] == "hernia"
    assert splits.train.ids[4:] == ("train-00004", "val-00000", "val-00001")
    assert splits.test.ids == ("test-00000", "test-00001", "test-00002")


def test_validation_images_can_be_left_out_without_another_cache(tmp_path: Path) -> None:
    labels = {"train": column(0, 1, 1), "val": column(0), "test": column(1, 0)}
    images = write_medmnist(tmp_path / "pneumoniamnist.npz", labels)
    for validation, count in (("train", 4), ("drop", 3)):
        source = MedMnist(folder=str(tmp_path), flag="pneumoniamnist", validation=validation)
        splits = source.load(tmp_path / "cache")
        assert len(splits.train) == count
        assert np.array_equal(splits.test.images[:, 0].numpy(), images["test"])
    assert len([path for path in (tmp_path / "cache").iterdir() if path.is_dir()]) == 1


def test_single_labels_and_grades_become_one_hot_vectors(tmp_path: Path) -> None:
    labels = {"train": column(4, 0, 2), "val": column(1), "test": column(3)}
    images = write_medmnist(tmp_path / "retinamnist.npz", labels, channels=3)
    splits = MedMnist(folder=str(tmp_path), flag="retinamnist").load(tmp_path / "cache")
    # Grades 4, 0, 2 and 1: a single 1 in the column of the grade.
    assert splits.train.labels.tolist() == [
        [0, 0, 0, 0, 1],
        [1, 0, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 1, 0, 0, 0],
    ]
    assert splits.test.labels.tolist() == [[0, 0, 0, 1, 0]]
    assert splits.test.classes[0] == "grade 0"
    assert np.array_equal(splits.test.images[0].numpy(), images["test"][0].transpose(2, 0, 1))


def test_larger_sizes_have_separate_files_and_are_read_in_chunks(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(files, "CHUNK_BYTES", 2 * 64 * 64 * 3)  # two images
    labels = {"train": column(*range(7)), "val": column(6), "test": column(5)}
    images = write_medmnist(tmp_path / "dermamnist_64.npz", labels, size=64, channels=3)
    splits = MedMnist(folder=str(tmp_path), flag="dermamnist", size=64).load(tmp_path / "cache")
    assert splits.train.images.shape == (8, 3, 64, 64)
    assert np.array_equal(splits.train.images[6].numpy(), images["train"][6].transpose(2, 0, 1))


def test_the_slices_of_a_volume_are_channels_in_their_order(tmp_path: Path) -> None:
    labels = {"train": column(10, 0), "val": column(3), "test": column(1)}
    volumes = write_medmnist(tmp_path / "organmnist3d_64.npz", labels, size=64, channels=64)
    splits = MedMnist(folder=str(tmp_path), flag="organmnist3d", size=64).load(tmp_path / "cache")
    assert np.array_equal(splits.train.images[:2].numpy(), volumes["train"])
    assert splits.train.classes[10] == "pancreas"
    assert splits.train.labels[0].nonzero().tolist() == [[10]]


@pytest.mark.parametrize(("flag", "channels"), [("nodulemnist3d", 3), ("breastmnist", 28)])
def test_volumes_and_images_are_not_confused(tmp_path: Path, flag: str, channels: int) -> None:
    splits = {split: column(0, 1) for split in ("train", "val", "test")}
    write_medmnist(tmp_path / f"{flag}.npz", splits, channels=channels)
    with pytest.raises(UserError, match=r"train_images is uint8 of shape \(2, 28, 28, "):
        MedMnist(folder=str(tmp_path), flag=flag).load(tmp_path / "cache")


@pytest.mark.parametrize("flag", TASKS)
def test_every_set_of_the_table_is_read(tmp_path: Path, flag: str) -> None:
    count = len(TASKS[flag].classes)
    each = np.eye(count, dtype=np.uint8) if flag == "chestmnist" else column(*range(count))
    splits, channels = {"train": each, "val": each, "test": each}, 28 if flag.endswith("3d") else 1
    write_medmnist(tmp_path / f"{flag}.npz", splits, channels=channels)
    splits = MedMnist(folder=str(tmp_path), flag=flag).load(tmp_path / "cache")
    assert np.array_equal(splits.test.labels.numpy(), np.eye(count))
    assert len(set(splits.test.classes)) == count


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"flag": "chestmnst"}, "MedMNIST has no 'chestmnst'; did you mean 'chestmnist'?"),
        (
            {"flag": "chestmnist", "size": 32},
            "size is 32; expected one of 28, 64, 128, 224 for chestmnist",
        ),
        (
            {"flag": "organmnist3d", "size": 128},
            "size is 128; expected one of 28, 64 for organmnist3d",
        ),
        (
            {"flag": "chestmnist", "size": 64},
            "holds no chestmnist_64.npz; download it from the MedMNIST",
        ),
    ],
)
def test_wrong_settings_are_refused(tmp_path: Path, settings, message: str) -> None:
    with pytest.raises(UserError) as error:
        MedMnist(folder=str(tmp_path), **settings).load(tmp_path / "cache")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("labels", "size", "message"),
    [
        (column(0, 2), 28, "train_labels should be one column of 0 to 1"),
        (np.zeros((2, 14), np.uint8), 28, "train_labels should be one column of 0 to 1"),
        (column(0, 1), 32, "train_images is uint8 of shape (2, 32, 32)"),
    ],
)
def test_files_of_another_set_or_size_are_refused(
    tmp_path: Path, labels, size: int, message: str
) -> None:
    splits = {"train": labels, "val": labels, "test": labels}
    write_medmnist(tmp_path / "breastmnist.npz", splits, size=size)
    with pytest.raises(UserError) as error:
        MedMnist(folder=str(tmp_path), flag="breastmnist").load(tmp_path / "cache")
    assert message in str(error.value)
    assert "breastmnist.npz" in str(error.value)


def test_multi_label_files_must_hold_0_and_1(tmp_path: Path) -> None:
    labels = np.full((2, 14), 2, np.uint8)
    write_medmnist(tmp_path / "chestmnist.npz", {"train": labels, "val": labels, "test": labels})
    with pytest.raises(UserError, match="train_labels should be 14 columns of 0 and 1"):
        MedMnist(folder=str(tmp_path), flag="chestmnist").load(tmp_path / "cache")


def test_damaged_and_incomplete_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "breastmnist.npz"
    source = MedMnist(folder=str(tmp_path), flag="breastmnist")
    write_medmnist(path, {"train": column(0, 1), "val": column(0)})
    with pytest.raises(UserError, match=r"breastmnist.npz cannot be used .*test_images"):
        source.load(tmp_path / "cache")
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(UserError, match=r"Download it again from the MedMNIST page"):
        source.load(tmp_path / "cache")
