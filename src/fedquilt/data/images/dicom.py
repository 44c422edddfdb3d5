"""Read a DICOM image as 8-bit pixels, as a viewer would show it.

Stored values go through the file's modality transform (rescale slope and intercept, or its table),
then through the given ``window``, or the file's own window or table, or the full range of its
bits. MONOCHROME1 is inverted so that high means bright. Only the elements that describe the image
are parsed: names and other patient data are never read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedquilt.data.images.bad_image import (
    NEEDS_PYDICOM,
    UNREADABLE_IMAGE,
    UNSUPPORTED_IMAGE,
    BadImage,
    check_pixel_count,
)
from fedquilt.data.images.bit_depth import Pixels, scale_to_bytes

ELEMENTS = [
    "SamplesPerPixel", "PhotometricInterpretation", "PlanarConfiguration", "NumberOfFrames",
    "Rows", "Columns", "BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation",
    "RescaleSlope", "RescaleIntercept", "RescaleType", "ModalityLUTSequence",
    "WindowCenter", "WindowWidth", "VOILUTFunction", "VOILUTSequence",
    "ExtendedOffsetTable", "ExtendedOffsetTableLengths", "PixelData",
]  # fmt: skip


def read_dicom(path: Path, window: tuple[float, float] | None) -> Pixels:
    """The image, grey (rows, columns) or colour (rows, columns, 3)."""
    try:
        from pydicom import dcmread
        from pydicom.errors import InvalidDicomError
        from pydicom.pixels.processing import apply_modality_lut
    except ImportError:
        raise BadImage(NEEDS_PYDICOM, "pydicom is not installed") from None
    try:
        data = dcmread(path, specific_tags=ELEMENTS)
    except InvalidDicomError:
        raise BadImage(UNREADABLE_IMAGE, "no DICOM header") from None
    if "PixelData" not in data or "Rows" not in data:
        raise BadImage(UNSUPPORTED_IMAGE, "a DICOM file without an image")
    check_pixel_count(int(data.Columns), int(data.Rows))
    if int(data.get("NumberOfFrames") or 1) != 1:
        raise BadImage(UNSUPPORTED_IMAGE, "several images in one DICOM file")
    stored = _stored_values(data)
    interpretation = str(data.PhotometricInterpretation)
    if stored.ndim == 3 and data.BitsAllocated == 8 and interpretation != "PALETTE COLOR":
        return stored.astype(np.uint8)
    if interpretation not in ("MONOCHROME1", "MONOCHROME2"):
        raise BadImage(UNSUPPORTED_IMAGE, f"DICOM pixels of type {interpretation}")
    grey = _apply_window(apply_modality_lut(stored, data), data, window)
    return 255 - grey if interpretation == "MONOCHROME1" else grey


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
