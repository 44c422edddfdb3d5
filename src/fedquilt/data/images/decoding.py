"""Find an image file in its folder, decode it to 8 bits and resize it to a square.

PNG, JPEG and TIFF are read by Pillow, DICOM by pydicom (extra ``dicom``). Rules that change pixels:

- 16-bit grey is scaled linearly to 8 bits. Without a ``window`` the range is 0 to 65535, or 0 to
  4095 if no pixel is above 4095 (a 12-bit device). Scaling each image by its own darkest and
  brightest pixel would make images incomparable; set ``window`` for another fixed range.
- Photographs are rotated by their EXIF orientation; transparent pixels are blended with black.
- ``fit``: "squash" ignores the aspect ratio, "crop" scales the shorter side and cuts the centre,
  "pad" scales the longer side and adds black.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Literal, NamedTuple, TypeAlias
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from fedquilt.data.images.bad_image import (
    MISSING_IMAGE,
    TOO_LARGE_IMAGE,
    UNREADABLE_IMAGE,
    UNSAFE_NAME,
    UNSUPPORTED_IMAGE,
    BadImage,
    check_pixel_count,
)
from fedquilt.data.images.bit_depth import Pixels, in_strips, scale_to_bytes
from fedquilt.data.images.dicom import DICOM_SUFFIXES, is_dicom, read_dicom

Fit: TypeAlias = Literal["crop", "squash", "pad"]

FORMATS = ("PNG", "JPEG", "TIFF")
PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff")
SUFFIXES = (*PICTURE_SUFFIXES, *DICOM_SUFFIXES)


@dataclass(frozen=True)
class Decoding:
    """The size, channels and range of decoded images."""

    size: int = 224
    channels: Literal[1, 3] = 3
    fit: Fit = "squash"
    window: tuple[float, float] | None = None  # 16-bit and DICOM values shown as black and white


class Decoded(NamedTuple):
    """A decoded image."""

    pixels: Pixels  # (channels, size, size)
    depth: str  # of the file: "8-bit", "12-bit", "16-bit" or "DICOM"


def find_image(folder: Path, name: str) -> Path:
    """The path of the file ``name`` in ``folder``, which is an absolute path without links.

    Raise :class:`BadImage` if the file does not exist or is outside the folder.
    """
    windows = PureWindowsPath(name)
    if not name or windows.anchor or ".." in windows.parts or "\0" in name:
        raise BadImage(UNSAFE_NAME, "not a name inside the folder")
    try:
        if not (folder / name).exists():
            # A Mac may write accents as letters of their own; a label file has them composed.
            forms = (normalize("NFD", name), normalize("NFC", name))
            name = next((form for form in forms if (folder / form).exists()), name)
        path = Path(os.path.realpath(folder / name, strict=True))
        if not path.is_relative_to(folder):
            raise BadImage(UNSAFE_NAME, "a link that points outside the folder")
        if not stat.S_ISREG(path.stat().st_mode):
            raise BadImage(MISSING_IMAGE, "not a file")
    except OSError:
        raise BadImage(MISSING_IMAGE, "no such file") from None
    return path


def decode_image(path: Path, decoding: Decoding) -> Decoded:
    """Decode and resize; raise :class:`BadImage` for any file that cannot be used."""
    try:
        if path.suffix.lower() in DICOM_SUFFIXES or is_dicom(path):
            image, depth = Image.fromarray(read_dicom(path, decoding.window)), "DICOM"
        else:
            image, depth = _read_image(path, decoding)
        return Decoded(_to_pixels(image, decoding), depth)
    except BadImage:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise BadImage(TOO_LARGE_IMAGE, "too many pixels") from None
    except PermissionError:
        raise BadImage(UNREADABLE_IMAGE, "no permission to read it") from None
    except UnidentifiedImageError:
        raise BadImage(UNREADABLE_IMAGE, "not a PNG, JPEG, TIFF or DICOM file") from None
    except Exception as error:
        # Decoders raise nearly any exception for malformed bytes. Its text may quote the file's
        # name or tags, so only its type is passed on.
        raise BadImage(UNREADABLE_IMAGE, f"damaged ({type(error).__name__})") from None


def _read_image(path: Path, decoding: Decoding) -> tuple[Image.Image, str]:
    with Image.open(path, formats=FORMATS) as image:
        check_pixel_count(*image.size)
        if image.format != "JPEG":  # a JPEG is decoded at a smaller size where that is enough
            check_pixel_count(*image.size, _pixel_bytes(image))
        if getattr(image, "n_frames", 1) > 1:
            raise BadImage(UNSUPPORTED_IMAGE, "several images in one file")
        if image.format == "JPEG":
            # Lets the decoder skip detail that resizing discards; with twice the final size the
            # result stays close to that of a full decode.
            image.draft(None, (2 * decoding.size, 2 * decoding.size))
            check_pixel_count(*image.size, _pixel_bytes(image))
        ImageOps.exif_transpose(image, in_place=True)
        if image.mode.startswith(("I", "F")):
            return _from_deep_grey(np.asarray(image), decoding.window)
        if image.has_transparency_data:
            layer = image.convert("RGBA")
            black = Image.new("RGBA", layer.size, (0, 0, 0, 255))
            return Image.alpha_composite(black, layer), "8-bit"
        image.load()  # before the file is closed
        return image, "8-bit"


def _pixel_bytes(image: Image.Image) -> int:
    """The memory for a pixel while decoding: the decoded image and its copies."""
    if image.mode.startswith(("I", "F")):
        return 4 + 4 + 1  # decoded, as an array, scaled to 8 bits
    if image.has_transparency_data:
        return 4 * 4  # decoded, with alpha, black, blended
    return 2 * max(3, len(image.getbands()))


def _from_deep_grey(
    values: NDArray[np.generic], window: tuple[float, float] | None
) -> tuple[Image.Image, str]:
    if values.dtype.kind == "f" or values.min() < 0 or values.max() > 65535:
        raise BadImage(UNSUPPORTED_IMAGE, "grey values that are not integers from 0 to 65535")
    depth, top = ("12-bit", 4095) if values.max() <= 4095 else ("16-bit", 65535)
    low, high = window or (0, top)
    pixels = in_strips(values, lambda strip: scale_to_bytes(strip, low, high))
    return Image.fromarray(pixels), depth


def _to_pixels(image: Image.Image, decoding: Decoding) -> Pixels:
    mode = "L" if decoding.channels == 1 else "RGB"
    if image.mode != mode:  # else it would be copied
        image = image.convert(mode)
    square, method = (decoding.size, decoding.size), Image.Resampling.BILINEAR
    if decoding.fit == "crop":
        image = ImageOps.fit(image, square, method)
    elif decoding.fit == "pad":
        scale = decoding.size / max(image.size)
        width, height = (max(1, round(side * scale)) for side in image.size)
        canvas = Image.new(image.mode, square)
        corner = ((decoding.size - width) // 2, (decoding.size - height) // 2)
        canvas.paste(image.resize((width, height), method), corner)
        image = canvas
    else:
        image = image.resize(square, method)
    pixels = np.asarray(image)  # (size, size) or (size, size, 3)
    return np.ascontiguousarray(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))
