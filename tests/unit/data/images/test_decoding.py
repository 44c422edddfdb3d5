"""Image files: allowed names, scaling and fitting of pixels, and errors."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.dicom_files import write_dicom
from support.folder_files import noise, write_grey

from fedquilt.data.images import bad_image
from fedquilt.data.images.bad_image import (
    MISSING_IMAGE,
    NEEDS_PYDICOM,
    TOO_LARGE_IMAGE,
    UNREADABLE_IMAGE,
    UNSAFE_NAME,
    UNSUPPORTED_IMAGE,
    BadImage,
)
from fedquilt.data.images.decoding import Decoding, decode_image, find_image

SMALL = Decoding(size=4, channels=1)


@pytest.mark.parametrize(
    "name",
    ["../secret.png", "a/../../secret.png", "/etc/hostname", "C:\\x.png", "..\\secret.png", "a\0b",
     "\\\\server\\share\\x.png", "//server/x.png", ""],
)  # fmt: skip
def test_names_that_leave_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    write_grey(tmp_path / "secret.png", 1)
    folder = tmp_path / "images"
    folder.mkdir()
    with pytest.raises(BadImage, match="relative to the image folder") as caught:
        find_image(folder, name)
    assert caught.value.kind is UNSAFE_NAME


def test_links_must_stay_inside_the_folder(tmp_path: Path) -> None:
    outside = write_grey(tmp_path / "secret.png", 1)
    inside = write_grey(tmp_path / "images" / "a" / "x.png", 1)
    folder = tmp_path / "images"
    (folder / "out.png").symlink_to(outside)
    (folder / "in.png").symlink_to(inside)
    (folder / "around").symlink_to(tmp_path)
    assert find_image(folder, "in.png") == inside
    for name in ("out.png", "around/secret.png"):
        with pytest.raises(BadImage, match="points outside the folder"):
            find_image(folder, name)


def test_what_is_not_a_file_is_missing(tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    os.mkfifo(tmp_path / "pipe.png")  # opening it would block forever
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    for name in ("folder.png", "pipe.png", "loop.png", "none.png", "x" * 5000):
        with pytest.raises(BadImage, match="add the files") as caught:
            find_image(tmp_path, name)
        assert caught.value.kind is MISSING_IMAGE


def test_grey_and_colour(tmp_path: Path) -> None:
    picture = noise((4, 4, 3))
    Image.fromarray(picture).save(tmp_path / "x.png")
    assert np.array_equal(
        decode_image(tmp_path / "x.png", Decoding(4)).pixels, picture.transpose(2, 0, 1)
    )
    grey = decode_image(write_grey(tmp_path / "g.png", 77, (4, 4)), Decoding(4))
    assert grey.depth == "8-bit"
    assert grey.pixels.shape == (3, 4, 4)
    assert (grey.pixels == 77).all()
    assert decode_image(tmp_path / "x.png", SMALL).pixels.shape == (1, 4, 4)


def save_deep(path: Path, values: list[list[int]]) -> Path:
    Image.fromarray(np.array(values, dtype=np.uint16)).save(path)
    return path


@pytest.mark.parametrize("ending", ["png", "tif"])
def test_16_bit_has_a_fixed_scale(tmp_path: Path, ending: str) -> None:
    found = decode_image(
        save_deep(tmp_path / f"x.{ending}", [[0, 65535], [257 * 10, 257 * 99]]), Decoding(2, 1)
    )
    assert found.depth == "16-bit"
    assert found.pixels.tolist() == [[[0, 255], [10, 99]]]  # 65535 / 255 = 257


def test_12_bit_and_window(tmp_path: Path) -> None:
    path = save_deep(tmp_path / "x.png", [[0, 4095], [819, 1638]])
    found = decode_image(path, Decoding(2, 1))
    assert found.depth == "12-bit"
    assert found.pixels.tolist() == [[[0, 255], [51, 102]]]  # 4095 / 255 = 16.06: 819 is a fifth
    windowed = decode_image(path, Decoding(2, 1, window=(819, 1638)))
    assert windowed.pixels.tolist() == [[[0, 255], [0, 255]]]


def test_float_tiff_is_refused(tmp_path: Path) -> None:
    Image.fromarray(np.ones((4, 4), dtype=np.float32)).save(tmp_path / "x.tif")
    with pytest.raises(BadImage, match="0 to 65535") as caught:
        decode_image(tmp_path / "x.tif", SMALL)
    assert caught.value.kind is UNSUPPORTED_IMAGE


def test_transparency_is_laid_over_black_and_palettes_are_read(tmp_path: Path) -> None:
    Image.new("RGBA", (4, 4), (200, 200, 200, 0)).save(tmp_path / "clear.png")
    assert (decode_image(tmp_path / "clear.png", SMALL).pixels == 0).all()
    palette = Image.new("RGB", (4, 4), (10, 20, 30)).quantize(4)
    palette.save(tmp_path / "palette.png", transparency=b"\xff\xff")
    assert decode_image(tmp_path / "palette.png", Decoding(4)).pixels[:, 0, 0].tolist() == [
        10,
        20,
        30,
    ]


def test_exif_orientation_rotates_the_image(tmp_path: Path) -> None:
    picture = Image.fromarray(np.array([[0] * 8 + [255] * 8] * 16, dtype=np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown turned clockwise: the bright right half goes to the bottom
    picture.save(tmp_path / "x.jpg", exif=exif, quality=100)
    shown = decode_image(tmp_path / "x.jpg", Decoding(16, 1)).pixels[0]
    assert shown[:7].max() < 20
    assert shown[9:].min() > 235


def test_fits(tmp_path: Path) -> None:
    """An image twice as wide as high: black quarter, white half, black quarter."""
    wide = np.zeros((8, 16), dtype=np.uint8)
    wide[:, 4:12] = 255
    Image.fromarray(wide).save(tmp_path / "x.png")
    crop, squash, pad = (
        decode_image(tmp_path / "x.png", Decoding(8, 1, fit)).pixels[0]
        for fit in ("crop", "squash", "pad")  # type: ignore[arg-type]
    )
    assert (crop == 255).all()  # the centre is the white half
    assert squash[4, [0, 3, 4, 7]].tolist() == [0, 255, 255, 0]
    assert pad[[0, 1, 6, 7]].max() == 0  # a quarter of the height above and below
    assert pad[3, [0, 3, 4, 7]].tolist() == [0, 255, 255, 0]


@pytest.mark.parametrize("fit", ["crop", "squash", "pad"])
def test_extreme_shapes_still_become_squares(tmp_path: Path, fit: Any) -> None:
    path = write_grey(tmp_path / "x.png", 9, (1000, 1))
    assert decode_image(path, Decoding(4, 1, fit)).pixels.shape == (1, 4, 4)


def test_errors_of_damaged_files_do_not_name_them(tmp_path: Path) -> None:
    Image.fromarray(noise((64, 64, 3))).save(tmp_path / "good.jpg")
    Image.fromarray(noise((64, 64, 3))).save(tmp_path / "good.png")
    jpeg, png = (tmp_path / "good.jpg").read_bytes(), (tmp_path / "good.png").read_bytes()
    header = bytearray(png)
    header[20] ^= 0xFF  # the height, so that the header's check sum is wrong
    for place, raw in enumerate(
        [b"", b"text", jpeg[:500], jpeg[: len(jpeg) // 2], png[:40], png[:-200], bytes(header)]
    ):
        path = tmp_path / f"Doe_Jane_{place}.png"
        path.write_bytes(raw)
        with pytest.raises(BadImage, match="export them again") as caught:
            decode_image(path, SMALL)
        assert caught.value.kind is UNREADABLE_IMAGE
        assert "Doe_Jane" not in str(caught.value)


def test_other_formats_and_several_pages_are_refused(tmp_path: Path) -> None:
    Image.new("L", (4, 4)).save(tmp_path / "x.bmp")
    with pytest.raises(BadImage, match="not a PNG, JPEG, TIFF or DICOM file"):
        decode_image(tmp_path / "x.bmp", SMALL)
    pages = [Image.new("L", (4, 4)), Image.new("L", (4, 4))]
    pages[0].save(tmp_path / "x.tif", save_all=True, append_images=pages[1:])
    with pytest.raises(BadImage, match="several images in one file"):
        decode_image(tmp_path / "x.tif", SMALL)


def test_decompression_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_grey(tmp_path / "x.png", 1, (20, 20))
    monkeypatch.setattr(bad_image, "PIXEL_LIMIT", 399)
    with pytest.raises(BadImage, match="20 x 20 pixels") as caught:
        decode_image(path, SMALL)
    assert caught.value.kind is TOO_LARGE_IMAGE
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)  # Pillow's own guard raises above twice it
    with pytest.raises(BadImage) as caught:
        decode_image(path, SMALL)
    assert caught.value.kind is TOO_LARGE_IMAGE


def grey_of(path: Path, window: tuple[float, float] | None = None) -> list[list[int]]:
    found = decode_image(path, Decoding(2, 1, window=window))
    assert found.depth == "DICOM"
    return found.pixels[0].tolist()


def test_dicom_full_range_rescale_and_inversion(tmp_path: Path) -> None:
    values = np.array([[0, 4095], [819, 1638]], dtype=np.uint16)
    path = tmp_path / "x"  # recognised by its content, not its ending
    write_dicom(path, values, BitsStored=12, HighBit=11)
    assert grey_of(path) == [[0, 255], [51, 102]]
    write_dicom(path, values, BitsStored=12, HighBit=11, PhotometricInterpretation="MONOCHROME1")
    assert grey_of(path) == [[255, 0], [204, 153]]
    write_dicom(path, values, BitsStored=12, HighBit=11, RescaleSlope=2, RescaleIntercept=-1000)
    assert grey_of(path) == [[0, 255], [51, 102]]  # the range is rescaled alike
    signed = np.array([[-128, 127], [-77, -26]], dtype=np.int8)
    write_dicom(path, signed)
    assert grey_of(path) == [[0, 255], [51, 102]]


def test_dicom_windows(tmp_path: Path) -> None:
    values = np.array([[0, 2000], [900, 1155]], dtype=np.uint16)
    path = tmp_path / "x.dcm"
    # LINEAR: from 1028 - 0.5 - 255 / 2 = 900 to 1028 - 0.5 + 255 / 2 = 1155
    write_dicom(path, values, WindowCenter=1028, WindowWidth=256)
    assert grey_of(path) == [[0, 255], [0, 255]]
    # Rescale goes first: the same window in halved units
    write_dicom(
        path, values, WindowCenter=514, WindowWidth=256, RescaleSlope=0.5, RescaleIntercept=0
    )
    assert grey_of(path) == [[0, 255], [64, 192]]  # 450 - 386 and 577.5 - 386 = 191.5 of 255
    # LINEAR_EXACT: from 900 to 1410, so 1155 is the middle, 127.5
    exact = {"WindowCenter": [1155, 5], "WindowWidth": [510, 5], "VOILUTFunction": "LINEAR_EXACT"}
    write_dicom(path, values, **exact)
    assert grey_of(path) == [[0, 255], [0, 128]]
    # SIGMOID: 255 / (1 + exp(-4 (x - 900) / 255)): 127.5 at 900, 255 / (1 + exp(-4)) at 1155
    write_dicom(path, values, WindowCenter=900, WindowWidth=255, VOILUTFunction="SIGMOID")
    assert grey_of(path) == [[0, 255], [128, 250]]
    assert grey_of(path, window=(900, 1410)) == [[0, 255], [0, 128]]  # the caller's goes first


def test_dicom_colour_and_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.dcm"
    colour = noise((2, 2, 3))
    rgb = {"SamplesPerPixel": 3, "PhotometricInterpretation": "RGB", "PlanarConfiguration": 0}
    write_dicom(path, colour, **rgb)
    assert np.array_equal(decode_image(path, Decoding(2)).pixels, colour.transpose(2, 0, 1))
    plain = np.zeros((2, 2), dtype=np.uint8)
    for elements, hint in (
        ({"PhotometricInterpretation": "PALETTE COLOR"}, "PALETTE COLOR"),
        ({"NumberOfFrames": 2, "PixelData": bytes(8)}, "several images"),
        ({"Rows": 60000, "Columns": 60000}, "60000 x 60000 pixels"),
        ({"PixelData": b"\0\0"}, "damaged"),
    ):
        write_dicom(path, plain, **elements)
        with pytest.raises(BadImage, match=hint) as caught:
            decode_image(path, SMALL)
        assert "Doe" not in str(caught.value)
    path.write_bytes(b"not DICOM at all")
    with pytest.raises(BadImage, match="no DICOM header"):
        decode_image(path, SMALL)
    write_dicom(path, plain)
    monkeypatch.setitem(sys.modules, "pydicom", None)
    with pytest.raises(BadImage, match=r"pip install 'fedquilt\[dicom\]'") as caught:
        decode_image(path, SMALL)
    assert caught.value.kind is NEEDS_PYDICOM
