from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from packed_files import (
    PER_FILE,
    cifar_files,
    cifar_images,
    write_cifar,
    write_cifar_archive,
    write_packed_cifar,
)

from fedquilt.data.sources.cifar10.load import Cifar10
from fedquilt.errors import UserError


def load(folder: Path, cache: Path):
    return Cifar10(folder=str(folder)).load(cache)


def check(splits) -> None:
    """The 200 training and 40 test images of the small files, four of each class in a file."""
    assert splits.train.images.shape == (200, 3, 32, 32)
    assert np.array_equal(splits.train.images.numpy(), cifar_images(0, 200))
    assert np.array_equal(splits.test.images.numpy(), cifar_images(200, 40))
    assert torch.equal(splits.train.labels.argmax(1), torch.arange(200) % 10)
    assert splits.train.labels.sum(0).tolist() == [20] * 10
    assert splits.test.labels.sum(0).tolist() == [4] * 10
    assert splits.test.labels.sum(1).tolist() == [1] * 40
    assert splits.train.known.all()
    assert splits.train.classes[:3] == ("airplane", "automobile", "bird")
    assert splits.train.ids[17] == "train-00017"
    assert splits.test.ids[0] == "test-00000"


def test_binary_files_are_read_wherever_they_lie(tmp_path: Path, monkeypatch) -> None:
    folder = write_cifar(tmp_path / "data", monkeypatch)
    check(load(folder, tmp_path / "cache"))
    check(load(folder / "cifar-10-batches-bin", tmp_path / "other"))
    check(load(folder, tmp_path / "cache"))  # from the cache


def test_archive_is_read_once_its_checksum_fits(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("fedquilt.data.sources.cifar10.files.IMAGES_PER_FILE", PER_FILE)
    path = tmp_path / "cifar-10-binary.tar.gz"
    write_cifar_archive(path)
    with pytest.raises(UserError, match=r"has the MD5 [0-9a-f]{32}; expected c32a1d4ab5d03f12"):
        load(tmp_path, tmp_path / "cache")
    md5 = hashlib.md5(path.read_bytes()).hexdigest()
    monkeypatch.setattr("fedquilt.data.sources.cifar10.files.BINARY_ARCHIVE_MD5", md5)
    check(load(tmp_path, tmp_path / "cache"))


def test_packed_jpegs_are_decoded(tmp_path: Path) -> None:
    write_packed_cifar(tmp_path / "cifar10_jpeg.npz", (1200, 10))  # more than two batches
    splits = load(tmp_path, tmp_path / "cache")
    assert splits.train.images.shape == (1200, 3, 32, 32)
    assert splits.test.labels.argmax(1).tolist() == list(range(10))
    expected = cifar_images(0, 1200).astype(int)
    assert np.abs(splits.train.images.numpy().astype(int) - expected).max() <= 4  # JPEG is lossy


@pytest.mark.parametrize("name", ["cifar-10-python.tar.gz", "cifar-10-batches-py"])
def test_pickled_version_is_refused_with_what_to_get_instead(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(UserError, match="pickles, which could run code") as error:
        load(tmp_path, tmp_path / "cache")
    assert "cifar-10-binary.tar.gz" in str(error.value)
    assert "University of Toronto" in str(error.value)


def test_missing_and_wrong_files_are_named(tmp_path: Path, monkeypatch) -> None:
    with pytest.raises(UserError, match=r"there is no folder .*nowhere; give the one that holds"):
        load(tmp_path / "nowhere", tmp_path / "cache")
    with pytest.raises(UserError, match=r"holds no cifar-10-batches-bin or cifar-10-binary.tar.gz"):
        load(tmp_path, tmp_path / "cache")
    folder = write_cifar(tmp_path, monkeypatch) / "cifar-10-batches-bin"
    (folder / "data_batch_3.bin").unlink()
    with pytest.raises(UserError, match=r"holds no data_batch_3.bin; get it from the CIFAR page"):
        load(tmp_path, tmp_path / "cache")
    content = cifar_files()["data_batch_3.bin"]
    (folder / "data_batch_3.bin").write_bytes(content[:-1])
    # 40 rows of 3,073 bytes
    with pytest.raises(UserError, match=r"data_batch_3.bin has 122,919 bytes; expected 40 images"):
        load(tmp_path, tmp_path / "cache")
    (folder / "data_batch_3.bin").write_bytes(b"\x0a" + content[1:])
    with pytest.raises(UserError, match=r"data_batch_3.bin holds the class 10; expected classes 0"):
        load(tmp_path, tmp_path / "cache")


def test_damaged_packed_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cifar10_jpeg.npz"
    write_packed_cifar(path)
    content = path.read_bytes()
    for damaged in (content[: len(content) // 2], b"not a zip file"):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"cifar10_jpeg.npz is not the packed file"):
            load(tmp_path, tmp_path / "cache")
    np.savez(path, train_jpeg=np.zeros(3, np.uint8))
    with pytest.raises(UserError, match="expected train_jpeg, train_offsets and train_labels"):
        load(tmp_path, tmp_path / "cache")


@pytest.mark.shared
def test_real_images_have_the_published_statistics(shared_folder: Path, tmp_path: Path) -> None:
    splits = load(shared_folder / "data", tmp_path)
    assert splits.train.labels.sum(0).tolist() == [5000] * 10
    assert splits.test.labels.sum(0).tolist() == [1000] * 10
    pixels = splits.train.images.float() / 255
    # The README's numbers; the copy is lossy, hence the tolerance.
    torch.testing.assert_close(
        pixels.mean((0, 2, 3)), torch.tensor([0.491, 0.482, 0.447]), atol=0.003, rtol=0
    )
    torch.testing.assert_close(
        pixels.std((0, 2, 3)), torch.tensor([0.247, 0.243, 0.262]), atol=0.003, rtol=0
    )
