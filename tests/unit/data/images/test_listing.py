"""list_images(): what a user may name, in which order it comes, and what is said of the rest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.dicom_files import write_dicom

from fedquilt.core.errors import UserError
from fedquilt.data.images.listing import list_images


def make_image(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (4, 4)).save(path)
    return path


def make_slice(path: Path, series: str, instance: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_dicom(
        path, np.zeros((4, 4), np.uint16), SeriesInstanceUID=series, InstanceNumber=instance
    )
    return path


def test_files_keep_their_order_also_twice_and_missing(tmp_path: Path):
    one, two = make_image(tmp_path / "b.png"), make_image(tmp_path / "a.png")
    named = [one, two, one, tmp_path / "missing.png"]
    assert list_images(named).paths == tuple(named)


def test_a_folder_is_searched_and_other_files_are_counted(tmp_path: Path):
    images = [make_image(tmp_path / name) for name in ("a.png", "b/c.JPG", "z.tif")]
    for name in ("notes.txt", "b/more.txt", "table.xml", ".hidden.png", "DICOMDIR"):
        (tmp_path / name).write_text("x" * 200)
    listing = list_images([tmp_path])
    assert listing.paths == tuple(images)
    assert listing.notes == (f"{tmp_path}: skipped 3 other files (.txt 2, .xml 1)",)


def test_a_folder_without_images_is_refused(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(UserError, match=r"holds no image; found 1 other files: \.txt 1"):
        list_images([tmp_path])


def test_globs_match_sorted_and_brackets_of_a_file_are_no_glob(tmp_path: Path):
    images = [make_image(tmp_path / name) for name in ("a/1.png", "a/2.png", "b/1.png")]
    assert list_images([f"{tmp_path}/*/*.png"]).paths == tuple(images)
    assert list_images([f"{tmp_path}/**"]).paths == tuple(images)  # each once
    literal = make_image(tmp_path / "scan [1].png")
    assert list_images([str(literal)]).paths == (literal,)
    with pytest.raises(UserError, match=r"no file matches .*\.bmp"):
        list_images([f"{tmp_path}/*.bmp"])


@pytest.mark.parametrize(
    "text",
    ["image,age\nx/a.png,3\nb.png,4\n", "\ufeffPath\nx/a.png\n\nb.png\n", "x/a.png\nb.png\n"],
)
def test_paths_of_a_csv_start_at_its_folder(text: str, tmp_path: Path):
    (tmp_path / "list.csv").write_text(text, encoding="utf-8")
    assert list_images([tmp_path / "list.csv"]).paths == (tmp_path / "x/a.png", tmp_path / "b.png")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scan,age\na.png,3\n", "has the columns scan, age; expected a column named image, path"),
        ("image\n", "names no image"),
        ("", "names no image"),
    ],
)
def test_a_csv_without_paths_is_refused(text: str, message: str, tmp_path: Path):
    (tmp_path / "list.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        list_images([tmp_path / "list.csv"])


def test_slices_of_a_series_follow_each_other(tmp_path: Path):
    """File names without endings, in an order that is neither that of the series nor of time."""
    late = make_slice(tmp_path / "s" / "IM1", "1.2.3", 10)
    early = make_slice(tmp_path / "s" / "IM2", "1.2.3", 2)
    other = make_slice(tmp_path / "s" / "IM0.dcm", "1.2.4", 1)
    broken = tmp_path / "s" / "broken.dcm"
    broken.write_bytes(b"nothing")
    picture = make_image(tmp_path / "s" / "key.png")
    listing = list_images([tmp_path / "s"])
    assert listing.paths == (picture, early, late, other, broken)
    assert "3 DICOM files of 2 series" in listing.notes[0]


def test_nothing_named_is_refused():
    with pytest.raises(UserError, match="no image to predict in nothing"):
        list_images([])
