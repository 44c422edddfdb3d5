from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import save_file
from torch import tensor

from fedquilt.core.errors import UserError
from fedquilt.models.class_names.text_vectors import encode, save_text_vectors

NAMES = ("cat", "dog")
PROMPT = "The photo contains {name}."
STORED = {"dog": [0.0, 1.0], "cat": [1.0, 0.0], "positive": [3.0, 4.0], "negative": [1.0, 1.0]}


@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
def test_a_file_is_read_by_name(tmp_path: Path, suffix: str):
    path = tmp_path / f"vectors{suffix}"
    _write(path, {**STORED, "bird": [9.0]})
    assert encode(str(path), NAMES, PROMPT).tolist() == [[1, 0], [0, 1], [1, 1], [3, 4]]


def _write(path: Path, vectors: dict[str, list[float]]) -> None:
    if path.suffix == ".npz":
        np.savez(path, **{name: np.array(vector) for name, vector in vectors.items()})
    else:
        save_file({name: tensor(vector) for name, vector in vectors.items()}, path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cat": None}, "has no vector for 'cat'; "),
        ({"negative": None}, "no vector for 'negative'"),
        ({"cat": [1.0]}, r"different lengths: \[1, 2\]"),
        ({"cat": [0.0, 0.0]}, "the vector of 'cat' is zero or not finite"),
        ({"cat": [float("nan"), 0.0]}, "the vector of 'cat'"),
    ],
)
def test_an_incomplete_file_is_refused(tmp_path: Path, change: dict, message: str):
    path = tmp_path / "vectors.safetensors"
    _write(path, {name: value for name, value in (STORED | change).items() if value is not None})
    with pytest.raises(UserError, match=message):
        encode(str(path), NAMES, PROMPT)


@pytest.mark.parametrize("name", ["vectors.safetensors", "vectors.npz"])
@pytest.mark.parametrize("content", [b"", b"nothing of the kind", b"PK\x03\x04 cut off"])
def test_a_damaged_file_is_refused(tmp_path: Path, name: str, content: bytes):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match="is not a readable"):
        encode(str(tmp_path / name), NAMES, PROMPT)


def test_a_pickle_in_an_npz_is_not_opened(tmp_path: Path):
    path = tmp_path / "vectors.npz"
    np.savez(path, cat=np.array([{}], dtype=object))
    with pytest.raises(UserError, match="is not a readable"):
        encode(str(path), NAMES, PROMPT)


def test_vectors_are_saved_as_safetensors_only(tmp_path: Path):
    with pytest.raises(UserError, match=r"written to a .safetensors file"):
        save_text_vectors(tmp_path / "vectors.npz", "hashed-names", NAMES)
