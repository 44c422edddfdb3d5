"""Small files in the published layouts of CIFAR-10, MNIST and MedMNIST."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

PER_FILE = 40  # CIFAR images in each file: four of each class, in cyclic order


def cifar_images(first: int, count: int = PER_FILE) -> NDArray[np.uint8]:
    """Image k has one colour: red k + 1, green its class + 1, blue 255."""
    number = np.arange(first, first + count)
    colours = np.stack([number + 1, number % 10 + 1, np.full(count, 255)], 1).astype(np.uint8)
    return np.broadcast_to(colours[:, :, None, None], (count, 3, 32, 32)).copy()


def cifar_files() -> dict[str, bytes]:
    """Training images 0 to 199 in five files and test images 200 to 239 in one."""
    content = {}
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    for place, name in enumerate(names):
        images = cifar_images(place * PER_FILE)
        classes = (np.arange(PER_FILE) % 10).astype(np.uint8)[:, None]
        content[name] = np.hstack([classes, images.reshape(PER_FILE, -1)]).tobytes()
    return content


def write_cifar(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the unpacked binary version, and make the loader expect ``PER_FILE`` images."""
    monkeypatch.setattr("fedquilt.data.sources.cifar10.files.IMAGES_PER_FILE", PER_FILE)
    below = folder / "cifar-10-batches-bin"
    below.mkdir(parents=True)
    for name, content in cifar_files().items():
        (below / name).write_bytes(content)
    return folder


def write_cifar_archive(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"cifar-10-batches/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def cifar_python_files(*, is_column_major: bool = False) -> dict[str, bytes]:
    """The images of ``cifar_files`` in the Python version: a Python 2 pickle, made by hand."""
    content = {}
    for place, name in enumerate(cifar_files()):
        images = cifar_images(place * PER_FILE).reshape(PER_FILE, -1)
        classes = [bytes((0x4B, number % 10)) for number in range(PER_FILE)]
        # Python 2 appended a thousand at a time; here the few images are written in two pieces.
        pieces = [b"".join(classes[:16]), b"".join(classes[16:])]
        pixels = images.tobytes("F" if is_column_major else "C")
        content[name.removesuffix(".bin")] = b"".join(
            (
                b"\x80\x02}q\x01(U\x0bbatch_labelq\x02U\x15training batch 1 of 5q\x03",
                b"U\x06labelsq\x04]q\x05" + b"".join(b"(" + piece + b"e" for piece in pieces),
                b"U\x04dataq\x06cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08",
                b"K\x00\x85U\x01b\x87Rq\x09(K\x01",
                b"M" + PER_FILE.to_bytes(2, "little") + b"M\x00\x0c\x86",
                b"cnumpy\ndtype\nq\x0aU\x02u1K\x00K\x01\x87Rq\x0b",
                b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb",
                b"\x88" if is_column_major else b"\x89",
                b"T" + len(pixels).to_bytes(4, "little") + pixels + b"tb",
                b"U\x09filenamesq\x0c]q\x0d(U\x05a.pngU\x05b.pngeu.",
            )
        )
    return content


def write_packed_cifar(path: Path, counts: tuple[int, int] = (20, 10)) -> None:
    """Write images of one colour as JPEGs in one array of bytes."""
    arrays: dict[str, Any] = {}
    for split, count in zip(("train", "test"), counts):
        files = []
        for image in cifar_images(0, count):
            file = io.BytesIO()
            Image.fromarray(image.transpose(1, 2, 0)).save(file, "JPEG", quality=100)
            files.append(file.getvalue())
        arrays[f"{split}_jpeg"] = np.frombuffer(b"".join(files), np.uint8)
        arrays[f"{split}_offsets"] = np.cumsum([0, *map(len, files)])
        arrays[f"{split}_labels"] = (np.arange(count) % 10).astype(np.uint8)
    np.savez(path, **arrays)


def mnist_images(first: int, count: int) -> NDArray[np.uint8]:
    """Image k is grey k + 1 with a white pixel in the upper left corner."""
    images = np.empty((count, 28, 28), np.uint8)
    images[:] = np.arange(first + 1, first + count + 1)[:, None, None]
    images[:, 0, 0] = 255
    return images


def write_mnist(folder: Path, monkeypatch: pytest.MonkeyPatch, *, packed: bool = True) -> Path:
    """Write 80 training and 40 test digits, and make the loader expect these counts."""
    counts = {"train": 80, "test": 40}
    monkeypatch.setattr("fedquilt.data.sources.mnist.load.COUNTS", counts)
    folder.mkdir(parents=True, exist_ok=True)
    for split, prefix, first in (("train", "train", 0), ("test", "t10k", 80)):
        count = counts[split]
        digits = (np.arange(count) % 10).astype(np.uint8)
        for name, array in (
            (f"{prefix}-images-idx3-ubyte", mnist_images(first, count)),
            (f"{prefix}-labels-idx1-ubyte", digits),
        ):
            header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
            content = header + array.tobytes()
            path = folder / (f"{name}.gz" if packed else name)
            path.write_bytes(gzip.compress(content, 1) if packed else content)
    return folder


def write_medmnist(
    path: Path, labels: dict[str, NDArray[np.generic]], size: int = 28, channels: int = 1
) -> dict[str, NDArray[np.uint8]]:
    """Write random images for the given labels of train, val and test; return the images."""
    random = np.random.default_rng(0)
    images = {}
    for split, given in labels.items():
        shape = (len(given), size, size) if channels == 1 else (len(given), size, size, channels)
        images[split] = random.integers(0, 256, shape, dtype=np.uint8)
    arrays: dict[str, Any] = {f"{split}_images": each for split, each in images.items()}
    arrays |= {f"{split}_labels": given for split, given in labels.items()}
    np.savez_compressed(path, **arrays)
    return images
