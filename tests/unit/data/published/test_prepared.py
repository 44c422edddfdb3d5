from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedquilt.core.errors import UserError
from fedquilt.data.published.prepared import prepare_arrays


class Maker:
    """Yields two arrays in chunks and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> Iterator[tuple[str, NDArray[np.uint8]]]:
        self.calls += 1
        rows = np.arange(24, dtype=np.uint8).reshape(4, 3, 2)
        yield "images", rows[:1]
        yield "labels", np.array([7], np.uint8)
        yield "images", rows[1:]
        yield "labels", np.array([8, 9, 10], np.uint8)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data.bin"
    path.write_bytes(b"content")
    return path


def folders(cache: Path) -> list[Path]:
    return sorted(path for path in cache.iterdir() if path.is_dir())


def test_chunks_become_arrays_that_are_made_once(tmp_path: Path, file: Path) -> None:
    cache, make = tmp_path / "cache", Maker()
    for _ in range(2):
        arrays = prepare_arrays(cache, "set", [file], {"size": 2}, make)
        expected = torch.arange(24, dtype=torch.uint8).reshape(4, 3, 2)
        assert torch.equal(arrays["images"], expected)
        assert arrays["labels"].tolist() == [7, 8, 9, 10]
    assert make.calls == 1
    assert folders(cache)[0].name.startswith("set-")


def test_another_file_or_setting_makes_new_arrays(tmp_path: Path, file: Path) -> None:
    cache, make = tmp_path / "cache", Maker()
    prepare_arrays(cache, "set", [file], {"size": 2}, make)
    prepare_arrays(cache, "set", [file], {"size": 3}, make)
    assert make.calls == 2
    file.write_bytes(b"longer content")
    prepare_arrays(cache, "set", [file], {"size": 2}, make)
    assert make.calls == 3
    os.utime(file, ns=(0, 0))
    prepare_arrays(cache, "set", [file], {"size": 2}, make)
    assert make.calls == 4
    assert len(folders(cache)) == 4


def test_writing_to_the_arrays_changes_no_file(tmp_path: Path, file: Path) -> None:
    prepare_arrays(tmp_path / "cache", "set", [file], {}, Maker())["labels"].zero_()
    assert prepare_arrays(tmp_path / "cache", "set", [file], {}, Maker())["labels"].tolist()[0] == 7


def test_an_interruption_leaves_nothing(tmp_path: Path, file: Path) -> None:
    def interrupted() -> Iterator[tuple[str, NDArray[np.uint8]]]:
        yield from Maker()()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare_arrays(tmp_path / "cache", "set", [file], {}, interrupted)
    assert folders(tmp_path / "cache") == []
    assert len(prepare_arrays(tmp_path / "cache", "set", [file], {}, Maker())["images"]) == 4


@pytest.mark.parametrize("damage", ["cut", "gone", "manifest"])
def test_a_damaged_folder_is_made_again(tmp_path: Path, file: Path, damage: str) -> None:
    make = Maker()
    prepare_arrays(tmp_path / "cache", "set", [file], {}, make)
    (home,) = folders(tmp_path / "cache")
    if damage == "cut":
        (home / "images.u8").write_bytes(b"1234")
    elif damage == "gone":
        (home / "labels.u8").unlink()
    else:
        (home / "arrays.json").write_text("{")
    assert len(prepare_arrays(tmp_path / "cache", "set", [file], {}, make)["images"]) == 4
    assert make.calls == 2


def test_the_manifest_holds_the_shapes(tmp_path: Path, file: Path) -> None:
    prepare_arrays(tmp_path / "cache", "set", [file], {}, Maker())
    (home,) = folders(tmp_path / "cache")
    shapes = json.loads((home / "arrays.json").read_text())
    assert shapes == {"images": [4, 3, 2], "labels": [4]}


def test_a_full_disk_is_reported(tmp_path: Path, file: Path) -> None:
    def full() -> Iterator[tuple[str, NDArray[np.uint8]]]:
        yield from Maker()()
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(UserError, match=r"the disk of the cache folder .* is full"):
        prepare_arrays(tmp_path / "cache", "set", [file], {}, full)
    assert folders(tmp_path / "cache") == []


@pytest.mark.parametrize("rows", [np.zeros((1, 3, 3), np.uint8), np.zeros((1, 3, 2), np.int64)])
def test_rows_that_do_not_fit_are_refused(tmp_path: Path, file: Path, rows) -> None:
    def uneven() -> Iterator[tuple[str, NDArray[np.uint8]]]:
        yield from Maker()()
        yield "images", rows

    with pytest.raises(ValueError, match="rows of 'images' must be uint8"):
        prepare_arrays(tmp_path / "cache", "set", [file], {}, uneven)
