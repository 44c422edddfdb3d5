"""Read CIFAR-10's files: the binary or Python version, or images packed as JPEGs."""

from __future__ import annotations

import io
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedquilt.core.errors import UserError
from fedquilt.data.parallel import in_parallel
from fedquilt.data.published.origin import Origin
from fedquilt.data.published.prepared import Chunks
from fedquilt.data.sources.cifar10.python_version import read_batch

ORIGIN = Origin("CIFAR-10", "the CIFAR page of A. Krizhevsky, University of Toronto")
PACKED = "cifar10_jpeg.npz"


@dataclass(frozen=True)
class Version:
    """One of the versions in which the same six files are published."""

    folder: str
    archive: str
    md5: str  # of the archive
    ending: str  # of the files

    @property
    def names(self) -> tuple[str, ...]:
        batches = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
        return tuple(f"{batch}{self.ending}" for batch in batches)


VERSIONS = (
    Version(
        "cifar-10-batches-bin", "cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", ".bin"
    ),
    Version(
        "cifar-10-batches-py", "cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", ""
    ),
)
IMAGES_PER_FILE = 10_000
SHAPE = (3, 32, 32)
ROW = 1 + 3 * 32 * 32  # bytes: the class, then the red, green and blue planes
BATCH = 500  # JPEGs that a thread decodes at a time; a single one is too little work

UNREADABLE = (
    *(OSError, EOFError, zipfile.BadZipFile, zlib.error),
    *(ValueError, KeyError, IndexError, NotImplementedError),
)

Bytes = NDArray[np.uint8]


def find_files(folder: Path) -> list[Path]:
    """The published files in ``folder``, in the first version that is found."""
    for version in VERSIONS:
        for candidate in (folder / version.folder, folder):
            if (candidate / version.names[0]).is_file():
                return [ORIGIN.find(candidate, name) for name in version.names]
    for name in (*(version.archive for version in VERSIONS), PACKED):
        if (folder / name).is_file():
            return [folder / name]
    wanted = [name for version in VERSIONS for name in (version.folder, version.archive)]
    raise ORIGIN.missing(folder, *wanted)


def read_files(files: list[Path]) -> Chunks:
    """``train_images``, ``train_targets``, ``test_images`` and ``test_targets``, in chunks."""
    packed = next((each for each in VERSIONS if each.archive == files[0].name), None)
    if files[0].name == PACKED:
        yield from _read_packed(files[0])
    elif packed is not None:
        content = _read_archive(files[0], packed)
        for name in packed.names:
            yield from _rows(files[0] / name, content[name])
    else:
        for path in files:
            with ORIGIN.reading(path):
                batch = path.read_bytes()
            yield from _rows(path, batch)


def _rows(path: Path, content: bytes) -> Chunks:
    targets, images = _from_binary(path, content) if path.suffix else _from_python(path, content)
    if targets.max() > 9:
        raise ORIGIN.wrong(path, f"holds the class {targets.max()}", "classes 0 to 9")
    split = "train" if path.name.startswith("data") else "test"
    yield f"{split}_images", images
    yield f"{split}_targets", targets


def _from_binary(path: Path, content: bytes) -> tuple[Bytes, Bytes]:
    expected = f"{IMAGES_PER_FILE:,} images, {IMAGES_PER_FILE * ROW:,} bytes"
    if len(content) != IMAGES_PER_FILE * ROW:
        raise ORIGIN.wrong(path, f"has {len(content):,} bytes", expected)
    rows = np.frombuffer(content, np.uint8).reshape(-1, ROW)
    return rows[:, 0], rows[:, 1:].reshape(-1, *SHAPE)


def _from_python(path: Path, content: bytes) -> tuple[Bytes, Bytes]:
    expected = f"{IMAGES_PER_FILE:,} images as published"
    try:
        targets, images = read_batch(content)
    except ValueError as error:
        raise ORIGIN.wrong(path, f"cannot be used ({error})", expected) from None
    if len(targets) != IMAGES_PER_FILE:
        raise ORIGIN.wrong(path, f"has {len(targets):,} images", expected)
    return targets, images


def _read_archive(path: Path, version: Version) -> dict[str, bytes]:
    ORIGIN.check_md5(path, version.md5)
    found = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                name = Path(member.name).name
                file = archive.extractfile(member) if name in version.names else None
                if file is not None:
                    found[name] = file.read()
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise ORIGIN.wrong(path, f"is damaged ({error})", "a complete archive") from error
    for name in version.names:
        if name not in found:
            raise ORIGIN.wrong(path, f"holds no {name}", ", ".join(version.names))
    return found


def _read_packed(path: Path) -> Chunks:
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            content = {name: file[name] for name in file.files}
        for split in ("train", "test"):
            yield from _decoded(split, content)
    except UserError:
        raise
    except UNREADABLE as error:
        layout = "train_jpeg, train_offsets and train_labels, and the same for test"
        raise UserError(f"CIFAR-10: {path} cannot be read ({error}); expected {layout}") from error


def _decoded(split: str, content: Mapping[str, Bytes]) -> Iterator[tuple[str, Bytes]]:
    """Decode the JPEGs between successive ``offsets`` with threads."""
    blob, offsets = content[f"{split}_jpeg"], content[f"{split}_offsets"]
    targets = np.asarray(content[f"{split}_labels"], np.uint8)
    if len(offsets) != len(targets) + 1 or targets.max() > 9:
        raise ValueError(f"the offsets and labels of {split} do not match")

    def decode(rows: range) -> Bytes:
        pixels = np.empty((len(rows), *SHAPE), np.uint8)
        for index, row in enumerate(rows):
            file = io.BytesIO(blob[offsets[row] : offsets[row + 1]].tobytes())
            with Image.open(file, formats=("JPEG",)) as image:
                pixels[index] = np.asarray(image.convert("RGB")).transpose(2, 0, 1)
        return pixels

    count = len(targets)
    batches = [range(start, min(start + BATCH, count)) for start in range(0, count, BATCH)]
    for pixels in in_parallel(decode, batches, f"decoding CIFAR-10, {split}", count_of=len):
        yield f"{split}_images", pixels
    yield f"{split}_targets", targets
