from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from fedquilt.data.published.npz_rows import npz_array


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_come_in_order_and_in_chunks(tmp_path: Path, save, order: str) -> None:
    whole = np.arange(7 * 3 * 2, dtype=np.int32).reshape(7, 3, 2)
    save(tmp_path / "a.npz", x=np.asarray(whole, order=order), y=np.ones(2))
    array = npz_array(tmp_path / "a.npz", "x")
    assert (array.shape, array.dtype) == ((7, 3, 2), np.dtype(np.int32))
    chunks = list(array.rows(3))
    assert [len(chunk) for chunk in chunks] == [3, 3, 1]
    assert np.array_equal(np.concatenate(chunks), whole)


def test_missing_arrays_objects_and_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, text=np.array(["a"]))
    with pytest.raises(KeyError, match="images"):
        npz_array(path, "images")
    with pytest.raises(ValueError, match="text holds <U1, expected numbers"):
        npz_array(path, "text")
    np.savez(path, objects=np.array([{}], object))
    with pytest.raises(ValueError, match="objects holds object, expected numbers"):
        npz_array(path, "objects")


def test_a_flipped_bit_is_found_by_the_checksum(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.zeros((100, 10), np.uint8))
    content = bytearray(path.read_bytes())
    content[600] ^= 1  # behind the zip's and the array's headers
    path.write_bytes(content)
    with pytest.raises(zipfile.BadZipFile, match="Bad CRC-32"):
        list(npz_array(path, "x").rows(30))


def test_an_array_that_ends_early_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.save(tmp_path / "x.npy", np.zeros((100, 10), np.uint8))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", (tmp_path / "x.npy").read_bytes()[:-5])
    with pytest.raises(ValueError, match="x ends after 90 of 100 rows"):
        list(npz_array(path, "x").rows(30))
