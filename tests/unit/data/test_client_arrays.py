"""Arrays of many clients in one file: read a client at a time, and refused if damaged."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from fedquilt.data.client_arrays import names_by_class, read_client_arrays, write_client_arrays

PARTS = [np.arange(6, dtype=np.int64).reshape(3, 2), np.zeros((0, 2), np.int64), -np.ones((1, 2))]
SIZES = [3, 0, 1]


def written() -> io.BytesIO:
    file = io.BytesIO()
    write_client_arrays(file, {"header": "ü"}, {"rows": [part.astype(np.int64) for part in PARTS]})
    file.seek(0)
    return file


def read(file: io.BytesIO, name: str = "rows", sizes: list[int] = SIZES) -> list[np.ndarray]:
    with zipfile.ZipFile(file) as archive:
        return list(read_client_arrays(archive, name, sizes))


def test_numpy_reads_the_file_as_one_array():
    with np.load(written(), allow_pickle=False) as file:
        assert str(file["header"]) == "ü"
        assert file["rows"].tolist() == [[0, 1], [2, 3], [4, 5], [-1, -1]]


def test_every_client_gets_its_rows():
    found = read(written())
    assert [part.tolist() for part in found] == [[[0, 1], [2, 3], [4, 5]], [], [[-1, -1]]]


def test_what_numpy_wrote_is_read_alike():
    file = io.BytesIO()
    np.savez_compressed(file, rows=np.concatenate(PARTS).astype(np.int64))
    assert [part.tolist() for part in read(file)] == [part.tolist() for part in read(written())]


def test_a_changed_byte_is_refused():
    file = io.BytesIO()
    np.savez(file, rows=np.concatenate(PARTS).astype(np.int64))
    content = bytearray(file.getvalue())
    place = content.index((5).to_bytes(8, "little"))
    content[place] = 6
    with pytest.raises(zipfile.BadZipFile, match="CRC"):
        read(io.BytesIO(content))


@pytest.mark.parametrize("array", [np.array([{}] * 4, object), np.ones((3, 2)), np.float64(4)])
def test_what_is_not_a_plain_row_per_image_is_refused(array: np.ndarray):
    file = io.BytesIO()
    np.savez(file, rows=array)
    with pytest.raises(ValueError, match="plain row per image"):
        read(file)


def test_classes_of_the_same_clients_share_a_list():
    annotated = np.array([[True, True, False], [True, True, True]])
    found = names_by_class(["north", "south"], ["a", "b", "c"], annotated)
    assert found == {"a": ["north", "south"], "b": ["north", "south"], "c": ["south"]}
    assert found["a"] is found["b"]
