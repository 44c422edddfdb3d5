"""Missing published files: the error says where they are, or what to unpack or download."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedquilt.core.errors import UserError
from fedquilt.data.published.origin import Origin, archive_hint, nearby_hint

ORIGIN = Origin("Cats", "the page of cats")


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


@pytest.mark.parametrize("given", [".", "set/images/part", "set/images"])
def test_the_folder_above_or_below_is_named(tmp_path: Path, given: str) -> None:
    put(tmp_path / "set" / "labels.csv")
    (tmp_path / "set" / "images" / "part").mkdir(parents=True)
    hint = nearby_hint(tmp_path / given, ("table.csv", "labels.csv"))
    assert hint.startswith(f"labels.csv is in {tmp_path / 'set'}: give that folder")


def test_folders_above_a_dot_are_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "labels.csv")
    (tmp_path / "images").mkdir()
    monkeypatch.chdir(tmp_path / "images")
    assert f"is in {tmp_path}:" in nearby_hint(Path(), ("labels.csv",))


def test_no_hint_if_nothing_is_nearby(tmp_path: Path) -> None:
    put(tmp_path / "a" / "b" / "c" / "labels.csv")
    assert nearby_hint(tmp_path, ("labels.csv",)) == ""  # three levels are too far
    assert archive_hint(tmp_path) == ""


def test_archives_are_to_be_unpacked(tmp_path: Path) -> None:
    put(tmp_path / "images" / "images_01.tar.gz")
    for name in ("b.zip", "a.tar", "c.TGZ", "notes.txt", "labels.gz"):
        put(tmp_path / name)
    assert archive_hint(tmp_path) == "unpack a.tar, b.zip, c.TGZ and 1 more"


@pytest.mark.parametrize(
    ("files", "given", "message"),
    [
        (["x/labels.csv"], ".", "holds no labels.csv; labels.csv is in "),
        (["all.zip"], ".", "holds no labels.csv; unpack all.zip or download it from the page of "),
        (["other.csv"], ".", "holds no labels.csv; download it from the page of cats"),
        (["labels.csv"], "labels.csv", "labels.csv is a file; give the folder that holds "),
        (["labels.csv/labels.csv"], ".", "holds no labels.csv; labels.csv is in "),
        ([], "nowhere", "nowhere; give the folder that holds labels.csv, from the page"),
    ],
)
def test_errors_say_what_to_do(tmp_path: Path, files: list[str], given: str, message: str) -> None:
    for name in files:
        put(tmp_path / name)
    with pytest.raises(UserError) as caught:
        ORIGIN.find(tmp_path / given, "labels.csv")
    assert message in str(caught.value)


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    put(tmp_path / "train")
    with pytest.raises(UserError, match="holds no train"):
        ORIGIN.find_folder(tmp_path, "train")


def test_disk_errors_name_the_origin(tmp_path: Path) -> None:
    refused = pytest.raises(UserError, match=r"list.txt cannot be read \(Permission .*of cats")
    with refused, ORIGIN.reading(tmp_path / "list.txt"):
        raise PermissionError(13, "Permission denied")
    (tmp_path / "list.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"list.txt is not text"):
        ORIGIN.read_text(tmp_path / "list.txt")
