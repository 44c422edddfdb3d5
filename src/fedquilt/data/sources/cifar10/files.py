"""CIFAR-10's files as arrays: the published binary version, or images packed as JPEGs."""

from __future__ import annotations

import io
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedquilt.data.parallel import in_parallel
from fedquilt.data.prepared import Chunks
from fedquilt.data.published import Origin
from fedquilt.errors import UserError

ORIGIN = Origin("CIFAR-10", "the CIFAR page of A. Krizhevsky, University of Toronto")
BINARY_FOLDER = "cifar-10-batches-bin"
BINARY_ARCHIVE = "cifar-10-binary.tar.gz"
BINARY_ARCHIVE_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"
PACKED = "cifar10_jpeg.npz"
PICKLED = ("cifar-10-python.tar.gz", "cifar-10-batches-py", "data_batch_1")

TRAIN_FILES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
BINARY_FILES = (*TRAIN_FILES, "test_batch.bin")
IMAGES_PER_FILE = 10_000
SHAPE = (3, 32, 32)
ROW = 1 + 3 * 32 * 32  # bytes: the class, then the red, green and blue planes
BATCH = 500  # JPEGs that a thread decodes at a time: one alone is too little work

Bytes = NDArray[np.uint8]


def find_files(folder: Path) -> list[Path]:
    """The published files in ``folder``, in whichever layout they are there."""
    for place in (folder / BINARY_FOLDER, folder):
        if (place / BINARY_FILES[0]).is_file():
            return [ORIGIN.find(place, name) for name in BINARY_FILES]
    for name in (BINARY_ARCHIVE, PACKED):
        if (folder / name).is_file():
            return [folder / name]
    hint = ""
    if any((folder / name).exists() for name in PICKLED):
        hint = (
            "What is there is the python version: pickles, which could run code when they are "
            f"read; of the three versions on the page take the binary one, {BINARY_ARCHIVE}"
        )
    raise ORIGIN.missing(folder, BINARY_FOLDER, BINARY_ARCHIVE, hint=hint)


def read_files(files: list[Path]) -> Chunks:
    """``train_images``, ``train_targets``, ``test_images`` and ``test_targets``, piece by piece."""
    if files[0].name == PACKED:
        yield from _read_packed(files[0])
    elif files[0].name == BINARY_ARCHIVE:
        content = _read_archive(files[0])
        for name in BINARY_FILES:
            yield from _rows(files[0] / name, content[name])
    else:
        for path in files:
            yield from _rows(path, path.read_bytes())


def _rows(path: Path, content: bytes) -> Chunks:
    expected = f"{IMAGES_PER_FILE:,} images, {IMAGES_PER_FILE * ROW:,} bytes"
    if len(content) != IMAGES_PER_FILE * ROW:
        raise ORIGIN.wrong(path, f"has {len(content):,} bytes", expected)
    rows = np.frombuffer(content, np.uint8).reshape(-1, ROW)
    if rows[:, 0].max() > 9:
        raise ORIGIN.wrong(path, f"holds the class {rows[:, 0].max()}", "classes 0 to 9")
    part = "train" if path.name in TRAIN_FILES else "test"
    yield f"{part}_images", rows[:, 1:].reshape(-1, *SHAPE)
    yield f"{part}_targets", rows[:, 0]


def _read_archive(path: Path) -> dict[str, bytes]:
    ORIGIN.check_md5(path, BINARY_ARCHIVE_MD5)
    found = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                name = Path(member.name).name
                file = archive.extractfile(member) if name in BINARY_FILES else None
                if file is not None:
                    found[name] = file.read()
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise ORIGIN.wrong(path, f"is damaged ({error})", "a whole archive") from error
    for name in BINARY_FILES:
        if name not in found:
            raise ORIGIN.wrong(path, f"holds no {name}", ", ".join(BINARY_FILES))
    return found


def _read_packed(path: Path) -> Chunks:
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            content = {name: file[name] for name in file.files}
        for part in ("train", "test"):
            yield from _decoded(part, content)
    except UserError:
        raise
    except (OSError, ValueError, KeyError, IndexError, EOFError, zipfile.BadZipFile) as error:
        layout = "train_jpeg, train_offsets and train_labels, and the same for test"
        raise UserError(
            f"CIFAR-10: {path} is not the packed file ({error}); expected {layout}"
        ) from error


def _decoded(part: str, content: Mapping[str, Bytes]) -> Iterator[tuple[str, Bytes]]:
    """The JPEGs between each two of ``offsets``, decoded by threads."""
    blob, offsets = content[f"{part}_jpeg"], content[f"{part}_offsets"]
    targets = np.asarray(content[f"{part}_labels"], np.uint8)
    if len(offsets) != len(targets) + 1 or targets.max() > 9:
        raise ValueError(f"the offsets and labels of {part} do not fit together")

    def decode(rows: range) -> Bytes:
        pixels = np.empty((len(rows), *SHAPE), np.uint8)
        for place, row in enumerate(rows):
            file = io.BytesIO(blob[offsets[row] : offsets[row + 1]].tobytes())
            with Image.open(file, formats=("JPEG",)) as picture:
                pixels[place] = np.asarray(picture.convert("RGB")).transpose(2, 0, 1)
        return pixels

    count = len(targets)
    batches = [range(start, min(start + BATCH, count)) for start in range(0, count, BATCH)]
    for pixels in in_parallel(decode, batches, f"decoding CIFAR-10, {part}", count_of=len):
        yield f"{part}_images", pixels
    yield f"{part}_targets", targets
