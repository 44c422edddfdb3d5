from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support.packed_files import (
    PER_FILE,
    cifar_files,
    cifar_images,
    cifar_python_files,
    write_cifar,
    write_cifar_archive,
    write_packed_cifar,
)

from fedquilt.core.errors import UserError
from fedquilt.data.sources.cifar10 import files
from fedquilt.data.sources.cifar10.load import Cifar10
from fedquilt.data.sources.cifar10.python_version import read_batch


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


def test_binary_files_are_found_in_either_folder(tmp_path: Path, monkeypatch) -> None:
    folder = write_cifar(tmp_path / "data", monkeypatch)
    check(load(folder, tmp_path / "cache"))
    check(load(folder / "cifar-10-batches-bin", tmp_path / "other"))
    check(load(folder, tmp_path / "cache"))  # from the cache


@pytest.mark.parametrize("is_column_major", [False, True])
def test_python_version_is_read_without_unpickling(
    tmp_path: Path, monkeypatch, is_column_major: bool
) -> None:
    monkeypatch.setattr(files, "IMAGES_PER_FILE", PER_FILE)
    below = tmp_path / "cifar-10-batches-py"
    below.mkdir()
    for name, content in cifar_python_files(is_column_major=is_column_major).items():
        (below / name).write_bytes(content)
    check(load(tmp_path, tmp_path / "cache"))
    check(load(below, tmp_path / "other"))


def test_pickles_are_not_executed(tmp_path: Path) -> None:
    wanted = tmp_path / "written"
    arguments = [len(each).to_bytes(4, "little") + each for each in (str(wanted).encode(), b"w")]
    content = b"\x80\x02cbuiltins\nopen\n(X" + b"X".join(arguments) + b"tR."
    with pytest.raises(ValueError, match="0 classes and 0 bytes of pixels"):
        read_batch(content)
    assert not wanted.exists()


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda content: content[:1000], "cannot be used"),
        (lambda content: b"no pickle", "cannot be used"),
        (lambda content: b"", "cannot be used"),
        (lambda content: content.replace(b"K\x09e", b"K\x0ae"), "holds the class 10"),
        (lambda content: content.replace(b"K\x09e", b"e"), "39 classes and 122,880 bytes"),
    ],
)
def test_wrong_python_files_are_named(tmp_path: Path, monkeypatch, change, found: str) -> None:
    monkeypatch.setattr(files, "IMAGES_PER_FILE", PER_FILE)
    for name, content in cifar_python_files().items():
        (tmp_path / name).write_bytes(change(content) if name == "data_batch_2" else content)
    with pytest.raises(UserError, match=rf"data_batch_2 .*{found}.*University of Toronto"):
        load(tmp_path, tmp_path / "cache")


@pytest.mark.parametrize("number", [0, 1])
def test_archive_is_read_if_its_checksum_matches(tmp_path: Path, monkeypatch, number: int) -> None:
    monkeypatch.setattr(files, "IMAGES_PER_FILE", PER_FILE)
    version = files.VERSIONS[number]
    path = tmp_path / version.archive
    write_cifar_archive(path, (cifar_files, cifar_python_files)[number]())
    with pytest.raises(UserError, match=rf"has the MD5 [0-9a-f]{{32}}; expected {version.md5}"):
        load(tmp_path, tmp_path / "cache")
    md5 = hashlib.md5(path.read_bytes()).hexdigest()
    monkeypatch.setattr(files, "VERSIONS", (replace(version, md5=md5),))
    check(load(tmp_path, tmp_path / "cache"))


def test_packed_jpegs_are_decoded(tmp_path: Path) -> None:
    write_packed_cifar(tmp_path / "cifar10_jpeg.npz", (1200, 10))  # more than two batches
    splits = load(tmp_path, tmp_path / "cache")
    assert splits.train.images.shape == (1200, 3, 32, 32)
    assert splits.test.labels.argmax(1).tolist() == list(range(10))
    expected = cifar_images(0, 1200).astype(int)
    assert np.abs(splits.train.images.numpy().astype(int) - expected).max() <= 4  # JPEG is lossy


def test_missing_and_wrong_files_are_named(tmp_path: Path, monkeypatch) -> None:
    with pytest.raises(UserError, match=r"no folder .*nowhere; give the folder that holds"):
        load(tmp_path / "nowhere", tmp_path / "cache")
    with pytest.raises(UserError, match=r"holds no cifar-10-batches-bin or cifar-10-binary.tar.gz"):
        load(tmp_path, tmp_path / "cache")
    folder = write_cifar(tmp_path, monkeypatch) / "cifar-10-batches-bin"
    (folder / "data_batch_3.bin").unlink()
    with pytest.raises(UserError, match=r"holds no data_batch_3.bin; download it from the CIFAR"):
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
    middle = len(content) // 3
    flipped = content[:middle] + bytes(255 - each for each in content[middle : middle + 50])
    flipped += content[middle + 50 :]
    for damaged in (content[: len(content) // 2], b"not a zip file", flipped):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"cifar10_jpeg.npz cannot be read"):
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
