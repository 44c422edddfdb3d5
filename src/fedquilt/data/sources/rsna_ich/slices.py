"""Decode CT slices from DICOM files; the three channels are three windows of a slice."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from fedquilt.data.images.bad_image import (
    NEEDS_PYDICOM,
    UNREADABLE_IMAGE,
    UNSUPPORTED_IMAGE,
    BadImage,
    check_pixel_count,
)
from fedquilt.data.images.bit_depth import Pixels, scale_to_bytes
from fedquilt.data.images.cache import ImageFile, cached_pixels
from fedquilt.data.images.dicom import ELEMENTS
from fedquilt.data.published.image_table import bad_images_error
from fedquilt.data.published.origin import Origin

Windows: TypeAlias = tuple[tuple[float, float], tuple[float, float], tuple[float, float]]

VERSION = 1  # raise it when decoding changes, so that older files are not used


def decoded_slices(
    files: Sequence[ImageFile], windows: Windows, size: int, cache: Path, origin: Origin
) -> Tensor:
    """The slices (N, 3, size, size) in the order of ``files``, memory-mapped; decoded if needed."""
    return cached_pixels(
        files,
        (3, size, size),
        lambda path: decode_slice(path, windows, size),
        ["rsna-ich", VERSION, windows, size],
        cache,
        partial(bad_images_error, origin),
    )


def decode_slice(path: Path, windows: Windows, size: int) -> Pixels:
    """Decode to (3, size, size); raise :class:`BadImage` for any file that cannot be used."""
    try:
        values = read_hounsfield(path)
    except BadImage:
        raise
    except Exception as error:  # malformed bytes raise nearly any exception, see ``decode_image``
        raise BadImage(UNREADABLE_IMAGE, f"damaged ({type(error).__name__})") from None
    shown = [
        scale_to_bytes(values, centre - width / 2, centre + width / 2) for centre, width in windows
    ]
    image = Image.fromarray(np.stack(shown, axis=2))
    resized = image.resize((size, size), Image.Resampling.BILINEAR)
    return np.ascontiguousarray(np.asarray(resized).transpose(2, 0, 1))


def read_hounsfield(path: Path) -> NDArray[np.float32]:
    """The slice in Hounsfield units: air is -1000, water 0."""
    try:
        from pydicom import dcmread
    except ImportError:
        raise BadImage(NEEDS_PYDICOM, "pydicom is not installed") from None
    data = dcmread(path, specific_tags=ELEMENTS)
    check_pixel_count(int(data.Columns), int(data.Rows))
    stored = np.asarray(data.pixel_array).astype(np.int32)
    if stored.ndim != 2:
        raise BadImage(UNSUPPORTED_IMAGE, "not a single grey slice")
    slope, intercept = float(data.RescaleSlope), float(data.RescaleIntercept)
    if data.BitsStored == 12 and data.PixelRepresentation == 0 and intercept > -100:
        # Some files hold negative 12-bit numbers but declare them as unsigned; with -1000 as the
        # lowest value they do not wrap around.
        stored, intercept = (stored + 1000) % 4096, -1000.0
    return (stored * slope + intercept).astype(np.float32)
