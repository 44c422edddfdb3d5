"""Read a DICOM image as 8-bit pixels, as a viewer would show it.

Stored values go through the file's modality transform (rescale slope and intercept, or its table),
then through the given ``window``, or the file's own window or table, or the full range of its
bits. MONOCHROME1 is inverted so that high means bright. Only the elements that describe the image
are parsed: names and other patient data are never read.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedquilt.data.images.bad_image import (
    NEEDS_PYDICOM,
    PIXEL_LIMIT,
    TOO_LARGE_IMAGE,
    UNREADABLE_IMAGE,
    UNSUPPORTED_IMAGE,
    BadImage,
    check_pixel_count,
)
from fedquilt.data.images.bit_depth import Pixels, in_strips, scale_to_bytes
from fedquilt.data.images.codestream import codestream_size

ELEMENTS = [
    "SamplesPerPixel", "PhotometricInterpretation", "PlanarConfiguration", "NumberOfFrames",
    "Rows", "Columns", "BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation",
    "RescaleSlope", "RescaleIntercept", "RescaleType", "ModalityLUTSequence",
    "WindowCenter", "WindowWidth", "VOILUTFunction", "VOILUTSequence",
    "ExtendedOffsetTable", "ExtendedOffsetTableLengths", "PixelData",
]  # fmt: skip

DICOM_SUFFIXES = (".dcm", ".dicom")
MAGIC_PLACE = 128  # bytes before the letters DICM
PIECE = 2**16  # bytes of a deflated file that are read and inflated at a time
HEADER_START = 128 + 4 + 12  # preamble, "DICM", and the element with the header's length
STORED_LIMIT = 2 * PIXEL_LIMIT  # bytes: the largest 16-bit image


class SeriesPlace(NamedTuple):
    """Where a file stands in its series; sorts in the order of a viewer."""

    series: str
    instance: int


def is_dicom(path: Path) -> bool:
    """Whether the file says so itself; many series have files without an ending."""
    try:
        with path.open("rb") as file:
            return file.read(MAGIC_PLACE + 4)[MAGIC_PLACE:] == b"DICM"
    except OSError:
        return False


def series_places(paths: Iterable[Path]) -> dict[Path, SeriesPlace]:
    """Return the places of files whose header can be read; pixels and patient data are not."""
    try:
        from pydicom import dcmread
    except ImportError:
        return {}
    places = {}
    for path in paths:
        try:
            _check_deflated(path)
            header = dcmread(
                path, stop_before_pixels=True, specific_tags=["SeriesInstanceUID", "InstanceNumber"]
            )
            series, instance = header.get("SeriesInstanceUID"), header.get("InstanceNumber")
            places[path] = SeriesPlace(str(series or ""), int(instance or 0))
        except Exception:
            continue  # damaged headers raise nearly anything; decoding reports the file
    return places


def read_dicom(path: Path, window: tuple[float, float] | None) -> Pixels:
    """The image, grey (rows, columns) or colour (rows, columns, 3)."""
    try:
        from pydicom import dcmread
        from pydicom.errors import InvalidDicomError
        from pydicom.pixels.processing import apply_modality_lut
    except ImportError:
        raise BadImage(NEEDS_PYDICOM, "pydicom is not installed") from None
    try:
        _check_deflated(path)
        data = dcmread(path, specific_tags=ELEMENTS)
    except InvalidDicomError:
        raise BadImage(UNREADABLE_IMAGE, "no DICOM header") from None
    if "PixelData" not in data or "Rows" not in data:
        raise BadImage(UNSUPPORTED_IMAGE, "a DICOM file without an image")
    _check_size(data)
    if int(data.get("NumberOfFrames") or 1) != 1:
        raise BadImage(UNSUPPORTED_IMAGE, "several images in one DICOM file")
    stored = _stored_values(data)
    interpretation = str(data.PhotometricInterpretation)
    if stored.ndim == 3 and data.BitsAllocated == 8 and interpretation != "PALETTE COLOR":
        return stored.astype(np.uint8)
    if interpretation not in ("MONOCHROME1", "MONOCHROME2"):
        raise BadImage(UNSUPPORTED_IMAGE, f"DICOM pixels of type {interpretation}")
    grey = in_strips(
        stored, lambda strip: _apply_window(apply_modality_lut(strip, data), data, window)
    )
    return 255 - grey if interpretation == "MONOCHROME1" else grey


def _check_deflated(path: Path) -> None:
    """Inflate a deflated file piece by piece: pydicom would inflate it whole, to any size."""
    from pydicom.filereader import read_file_meta_info
    from pydicom.uid import DeflatedExplicitVRLittleEndian

    header = read_file_meta_info(path)
    if header.get("TransferSyntaxUID") != DeflatedExplicitVRLittleEndian:
        return
    with path.open("rb") as file:
        file.seek(HEADER_START + int(header.FileMetaInformationGroupLength))
        inflate, size, piece = zlib.decompressobj(-zlib.MAX_WBITS), 0, file.read(PIECE)
        while piece and not inflate.eof:  # a padding byte may follow the stream
            size += len(inflate.decompress(piece, PIECE))
            if size > STORED_LIMIT:
                raise BadImage(TOO_LARGE_IMAGE, "a deflated DICOM file that is too large inflated")
            piece = inflate.unconsumed_tail or file.read(PIECE)


def _check_size(data: Any) -> None:
    """Check the memory for decoding, and that compressed pixels are of the size given."""
    width, height = int(data.Columns), int(data.Rows)
    samples = int(data.get("SamplesPerPixel") or 1)
    stored = max(1, int(data.get("BitsAllocated") or 8) // 8) * samples
    check_pixel_count(width, height, 2 * stored + samples)  # in the file, decoded, as 8 bits
    from pydicom.encaps import generate_frames
    from pydicom.uid import AllTransferSyntaxes

    syntax = data.file_meta.TransferSyntaxUID
    if syntax not in AllTransferSyntaxes or not syntax.is_encapsulated:
        return
    for frame in generate_frames(data.PixelData, number_of_frames=1):
        found = codestream_size(frame)
        if found is not None and found != (width, height):
            detail = f"compressed pixels of another size than the {width} x {height} given"
            raise BadImage(UNREADABLE_IMAGE, detail)


def _stored_values(data: Any) -> NDArray[np.generic]:
    try:
        return np.asarray(data.pixel_array)
    except (RuntimeError, NotImplementedError):  # raised by pydicom if a decoder is missing
        syntax = data.file_meta.TransferSyntaxUID.name
        detail = f"no installed decoder reads {syntax} (pylibjpeg adds some)"
        raise BadImage(UNSUPPORTED_IMAGE, detail) from None


def _apply_window(
    values: NDArray[np.generic], data: Any, window: tuple[float, float] | None
) -> Pixels:
    if window is not None:
        return scale_to_bytes(values, *window)
    if data.get("VOILUTSequence"):
        from pydicom.pixels.processing import apply_voi

        bits = int(data.VOILUTSequence[0].LUTDescriptor[2])
        return scale_to_bytes(apply_voi(values, data), 0, 2**bits - 1)
    centre, width = _first(data.get("WindowCenter")), _first(data.get("WindowWidth"))
    if centre is None or width is None:
        return scale_to_bytes(values, *_full_range(data))
    function = str(data.get("VOILUTFunction") or "LINEAR").upper()
    if function == "SIGMOID":
        power = -4 * (values.astype(np.float32) - centre) / max(width, 1e-6)
        return scale_to_bytes(1 / (1 + np.exp(power.clip(-50, 50))), 0, 1)
    if function == "LINEAR":  # DICOM PS3.3 C.11.2.1.2: half a unit lower and one unit narrower
        centre, width = centre - 0.5, width - 1
    return scale_to_bytes(values, centre - width / 2, centre + width / 2)


def _full_range(data: Any) -> tuple[float, float]:
    """The range of the stored bits after the modality transform."""
    bits = int(data.BitsStored)
    lowest = -(2 ** (bits - 1)) if data.PixelRepresentation else 0
    ends = np.array([lowest, lowest + 2**bits - 1], dtype=np.float64)
    if data.get("ModalityLUTSequence"):
        return 0, 2 ** int(data.ModalityLUTSequence[0].LUTDescriptor[2]) - 1
    ends = ends * float(data.get("RescaleSlope", 1)) + float(data.get("RescaleIntercept", 0))
    return float(ends.min()), float(ends.max())


def _first(value: Any) -> float | None:
    """The first of several windows, which is the one that viewers show."""
    if value is None or value == "":
        return None
    several = not isinstance(value, (str, int, float)) and hasattr(value, "__len__")
    return float(value[0] if several else value)
