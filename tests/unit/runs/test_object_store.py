"""Trees of tensors on disk, named by the hash of their content."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch
from torch import tensor

from fedquilt.core.tree import same_bits
from fedquilt.runs.object_store import EMPTY, DamagedObject, ObjectStore

TREE = {"a": {"b": torch.randn(3, 4), "n": tensor([1, 2])}, "flag": tensor(True)}


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


@pytest.mark.parametrize(
    "tree",
    [
        TREE,
        tensor([1.0, 2.0]),
        {"scalar": tensor(3.0), "none": torch.zeros(0, 3)},
        {"half": torch.ones(2, dtype=torch.bfloat16), "tags": tensor([-1, 0], dtype=torch.int8)},
        {"nan": tensor([torch.nan, -0.0, torch.inf])},
        {"turned": torch.arange(6.0).reshape(2, 3).T},
    ],
)
def test_a_tree_is_restored_bit_for_bit(tmp_path, tree):
    store = ObjectStore(tmp_path)
    assert same_bits(store.get(store.put(tree)), tree)


def test_a_tree_may_hold_a_tensor_twice(tmp_path):
    """States share tensors: a teacher that starts as the student has the same ones."""
    store, weights = ObjectStore(tmp_path), torch.arange(4.0)
    tree = {"weights": {"w": weights}, "teacher": {"w": weights}, "first": weights[:2]}
    assert same_bits(store.get(store.put(tree)), tree)


def test_the_key_is_the_hash_of_the_file(tmp_path):
    key = ObjectStore(tmp_path).put(TREE)
    path = only_file(tmp_path)
    assert path.name == f"{key}.safetensors"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == key


def test_equal_trees_are_stored_once(tmp_path):
    store = ObjectStore(tmp_path)
    reordered = {"flag": tensor(True), "a": {"n": TREE["a"]["n"], "b": TREE["a"]["b"].clone()}}
    assert store.put(TREE) == store.put(reordered)
    only_file(tmp_path)


def test_a_tree_without_tensors_needs_no_file(tmp_path):
    store = ObjectStore(tmp_path)
    assert store.put({}) == store.put({"a": {}}) == EMPTY
    assert store.get(EMPTY) == {}
    assert list(tmp_path.iterdir()) == []


def test_every_altered_byte_is_detected(tmp_path):
    store = ObjectStore(tmp_path)
    key = store.put(TREE)
    path = only_file(tmp_path)
    whole = path.read_bytes()
    for offset in range(0, len(whole), 7):
        path.write_bytes(whole[:offset] + bytes([whole[offset] ^ 1]) + whole[offset + 1 :])
        with pytest.raises(DamagedObject, match="was cut short or altered"):
            store.get(key)


def test_every_truncation_is_detected(tmp_path):
    store = ObjectStore(tmp_path)
    key = store.put(TREE)
    path = only_file(tmp_path)
    whole = path.read_bytes()
    for length in (0, 1, 7, 8, 9, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedObject, match="was cut short or altered"):
            store.get(key)


def test_a_missing_object_counts_as_damaged(tmp_path):
    with pytest.raises(DamagedObject, match=r"0123\.safetensors cannot be read: .*No such file"):
        ObjectStore(tmp_path).get("0123")


def test_a_file_that_is_not_safetensors_counts_as_damaged(tmp_path):
    content = b"not a tensor"
    key = hashlib.sha256(content).hexdigest()
    (tmp_path / f"{key}.safetensors").write_bytes(content)
    with pytest.raises(DamagedObject, match="is not safetensors"):
        ObjectStore(tmp_path).get(key)


@pytest.mark.parametrize("damage", [b"", b"garbage"])
def test_putting_a_tree_again_replaces_a_damaged_file(tmp_path, damage):
    """A run that repeats a round because of damaged objects stores the same objects again."""
    key = ObjectStore(tmp_path).put(TREE)
    only_file(tmp_path).write_bytes(damage)
    store = ObjectStore(tmp_path)
    assert store.put(TREE) == key
    assert same_bits(store.get(key), TREE)


def test_keep_only_removes_other_objects_and_partial_files(tmp_path):
    store = ObjectStore(tmp_path)
    kept, dropped = store.put(TREE), store.put({"x": tensor(1.0)})
    (tmp_path / f".{kept}.safetensors.123.partial").write_bytes(b"half")
    store.keep_only({kept, EMPTY})
    assert only_file(tmp_path).stem == kept
    with pytest.raises(DamagedObject):
        store.get(dropped)


def test_make_durable_accepts_the_empty_key(tmp_path):
    store = ObjectStore(tmp_path)
    store.make_durable({EMPTY, store.put(TREE)})


def test_only_new_objects_are_waited_for(tmp_path, monkeypatch):
    waited: list[str] = []
    monkeypatch.setattr(
        "fedquilt.runs.object_store.wait_for_disk", lambda path: waited.append(path.stem)
    )
    store = ObjectStore(tmp_path)
    old, new = store.put(tensor([1.0])), store.put(tensor([2.0]))
    store.make_durable({old, EMPTY})
    assert waited == [old, tmp_path.stem]
    store.make_durable({old, new})
    assert waited[2:] == [new, tmp_path.stem]
    only = tmp_path / f"{old}.safetensors"
    only.unlink()
    store.put(tensor([1.0]))  # written again, so it may be lost again
    store.make_durable({old, new})
    assert waited[4:] == [old, tmp_path.stem]
