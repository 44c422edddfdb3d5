"""Atomic file writes: a file is complete or absent."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fedquilt.core import atomic_files
from fedquilt.core.atomic_files import wait_for_disk, write_bytes, write_json


def fail(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_written_and_nothing_else(tmp_path, durable):
    path = tmp_path / "file"
    write_bytes(path, b"one", durable=durable)
    write_bytes(path, b"two", durable=durable)
    assert path.read_bytes() == b"two"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_bytes(path, b"old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"


def test_a_write_that_fails_leaves_no_partial_file(tmp_path, monkeypatch):
    """On a full disk, a partial file must not stay and use up the remaining space."""
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_bytes(tmp_path / "file", b"new")
    assert list(tmp_path.iterdir()) == []


def test_a_process_killed_before_the_rename_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_bytes(path, b"old")
    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"


def test_the_content_is_on_disk_before_the_name(tmp_path, monkeypatch):
    events = []
    true_sync, true_replace = os.fsync, Path.replace

    def sync(descriptor: int) -> None:
        events.append("sync")
        true_sync(descriptor)

    def replace(self: Path, target: Path) -> Path:
        events.append("rename")
        return true_replace(self, target)

    monkeypatch.setattr(atomic_files.os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", replace)
    write_bytes(tmp_path / "file", b"x")
    assert events == ["sync", "rename", "sync"]  # the content, the name, the folder


def test_json_is_readable_and_keeps_letters(tmp_path):
    path = tmp_path / "file.json"
    write_json(path, {"class": "Ödem", "share": 0.1})
    assert "Ödem" in path.read_text(encoding="utf-8")
    assert json.loads(path.read_text(encoding="utf-8")) == {"class": "Ödem", "share": 0.1}


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_json_has_no_nan(tmp_path, number):
    path = tmp_path / "file.json"
    write_json(path, {"old": 1})
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"x": [number]})
    assert json.loads(path.read_text()) == {"old": 1}


def test_syncing_a_missing_path_is_not_an_error(tmp_path):
    wait_for_disk(tmp_path / "nothing")
    wait_for_disk(tmp_path)
