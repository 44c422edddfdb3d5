"""Errors of a cache folder that cannot be created or written to."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from fedquilt.core.errors import UserError
from fedquilt.data.images.cache import cache_lock


def test_a_file_in_place_of_the_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    error = pytest.raises(UserError, match=r"cache folder .*cache cannot be written to .*--cache")
    with error, cache_lock(tmp_path / "cache" / "x.lock"):
        pass


def test_a_folder_without_permission_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **settings: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # file modes do not stop tests that run as root
    error = pytest.raises(UserError, match=r"cannot be written to \(Permission denied\)")
    with error, cache_lock(tmp_path / "x.lock"):
        pass


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_reported(tmp_path: Path, number: int) -> None:
    error = pytest.raises(UserError, match=r"the disk of the cache folder .* is full")
    with error, cache_lock(tmp_path / "new" / "x.lock"):
        raise OSError(number, "no room")


def test_other_errors_are_passed_on(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), cache_lock(tmp_path / "x.lock"):
        raise FileNotFoundError(errno.ENOENT, "gone")
