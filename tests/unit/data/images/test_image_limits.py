"""A small file cannot take much memory: sizes are checked before anything is decoded."""

from __future__ import annotations

import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.dicom_files import write_dicom

from fedquilt.data.images import bad_image, dicom
from fedquilt.data.images.bad_image import (
    BYTE_LIMIT,
    TOO_LARGE_IMAGE,
    UNREADABLE_IMAGE,
    BadImage,
    check_pixel_count,
)
from fedquilt.data.images.bit_depth import in_strips, scale_to_bytes
from fedquilt.data.images.codestream import codestream_size
from fedquilt.data.images.decoding import Decoding, decode_image

TINY = Decoding(size=4, channels=1)


def _refusal(path: Path) -> BadImage:
    with pytest.raises(BadImage) as caught:
        decode_image(path, TINY)
    return caught.value


def test_the_largest_colour_image_is_just_allowed() -> None:
    check_pixel_count(1, BYTE_LIMIT // 6, 6)
    with pytest.raises(BadImage, match="pixels that take 537 MB to decode"):
        check_pixel_count(1, BYTE_LIMIT // 9 + 1, 9)


@pytest.mark.parametrize(
    ("mode", "pixel_bytes"), [("L", 6), ("RGB", 6), ("CMYK", 8), ("I;16", 9), ("RGBA", 16)]
)
def test_memory_counts_as_well_as_pixels(
    mode: str, pixel_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.tif"
    Image.new(mode, (10, 10)).save(path)
    monkeypatch.setattr(bad_image, "BYTE_LIMIT", 100 * pixel_bytes)
    decode_image(path, TINY)
    monkeypatch.setattr(bad_image, "BYTE_LIMIT", 100 * pixel_bytes - 1)
    assert _refusal(path).kind is TOO_LARGE_IMAGE


def test_a_jpeg_is_measured_at_the_size_it_is_decoded_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.new("RGB", (800, 800)).save(tmp_path / "x.jpg")
    monkeypatch.setattr(bad_image, "BYTE_LIMIT", 100 * 100 * 6)  # an eighth of each side
    decode_image(tmp_path / "x.jpg", TINY)


def test_a_deflated_dicom_file_is_inflated_only_to_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pydicom = pytest.importorskip("pydicom")
    from pydicom.uid import DeflatedExplicitVRLittleEndian

    values = np.zeros((200, 200), dtype=np.uint16)
    plain = pydicom.dcmread(write_dicom(tmp_path / "plain.dcm", values))
    plain.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    path = tmp_path / "deflated.dcm"
    plain.save_as(path, enforce_file_format=True)
    assert path.stat().st_size < 2000
    decode_image(path, TINY)
    inflated = len(zlib.decompress(path.read_bytes()[_data_start(path) :], -zlib.MAX_WBITS))
    monkeypatch.setattr(dicom, "STORED_LIMIT", inflated)
    decode_image(path, TINY)
    monkeypatch.setattr(dicom, "STORED_LIMIT", inflated - 1)
    assert "too large inflated" in str(_refusal(path))


def _data_start(path: Path) -> int:
    from pydicom.filereader import read_file_meta_info

    return 144 + int(read_file_meta_info(path).FileMetaInformationGroupLength)


BOMB = """
import resource, sys
from pathlib import Path
from fedquilt.data.images.decoding import Decoding, decode_image
decode_image(Path(sys.argv[2]), Decoding(size=4, channels=1))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decode_image(Path(sys.argv[1]), Decoding(size=4, channels=1))
except Exception as error:
    print(type(error).__name__)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_a_deflated_bomb_takes_little_memory(tmp_path: Path) -> None:
    """398 KB that inflate to 400 MB: refused; measured in a process of its own."""
    pydicom = pytest.importorskip("pydicom")
    from pydicom.uid import DeflatedExplicitVRLittleEndian

    small = write_dicom(tmp_path / "small.dcm", np.zeros((4, 4), dtype=np.uint16))
    data = pydicom.dcmread(small)
    data.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    data.save_as(tmp_path / "bomb.dcm", enforce_file_format=True)
    start = _data_start(tmp_path / "bomb.dcm")
    packer = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    pieces = [packer.compress(bytes(2**22)) for _ in range(100)]
    bomb = (tmp_path / "bomb.dcm").read_bytes()[:start] + b"".join(pieces) + packer.flush()
    (tmp_path / "bomb.dcm").write_bytes(bomb)
    assert len(bomb) < 450_000
    done = subprocess.run(
        [sys.executable, "-c", BOMB, str(tmp_path / "bomb.dcm"), str(small)],
        capture_output=True,
        text=True,
        check=True,
    )
    kind, megabytes = done.stdout.split()
    assert kind == "BadImage"
    assert int(megabytes) < 50


def test_dicom_memory_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_dicom(tmp_path / "x.dcm", np.zeros((10, 10), dtype=np.uint16))
    monkeypatch.setattr(bad_image, "BYTE_LIMIT", 100 * 5)  # in the file, decoded, as 8 bits
    decode_image(path, TINY)
    monkeypatch.setattr(bad_image, "BYTE_LIMIT", 100 * 5 - 1)
    assert _refusal(path).kind is TOO_LARGE_IMAGE


def test_compressed_pixels_cannot_be_larger_than_the_file_says(tmp_path: Path) -> None:
    pydicom = pytest.importorskip("pydicom")
    from pydicom.encaps import encapsulate
    from pydicom.uid import JPEGBaseline8Bit

    jpeg = tmp_path / "large.jpg"
    Image.new("L", (64, 64)).save(jpeg)
    data = pydicom.dcmread(write_dicom(tmp_path / "x.dcm", np.zeros((4, 4), dtype=np.uint8)))
    data.file_meta.TransferSyntaxUID = JPEGBaseline8Bit
    data.PixelData = encapsulate([jpeg.read_bytes()])
    data["PixelData"].is_undefined_length = True
    data.save_as(tmp_path / "x.dcm", enforce_file_format=True)
    refusal = _refusal(tmp_path / "x.dcm")
    assert refusal.kind is UNREADABLE_IMAGE
    assert "another size than the 4 x 4 given" in str(refusal)


def test_sizes_are_read_from_compressed_data(tmp_path: Path) -> None:
    for name in ("x.jpg", "x.jp2", "x.j2k"):
        Image.new("L", (37, 21)).save(tmp_path / name)
        assert codestream_size((tmp_path / name).read_bytes()) == (37, 21)
    content = (tmp_path / "x.jpg").read_bytes()
    assert codestream_size(content[:20]) is None
    assert codestream_size(b"") is None
    assert codestream_size(b"\xff\xd8" + b"\x00" * 50) is None


def test_strips_give_the_same_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.arange(35 * 20, dtype=np.uint16).reshape(35, 20) * 93
    whole = scale_to_bytes(values, 3, 60000)
    monkeypatch.setattr("fedquilt.data.images.bit_depth.STRIP_VALUES", 60)  # three rows
    assert np.array_equal(in_strips(values, lambda strip: scale_to_bytes(strip, 3, 60000)), whole)
