"""BadImage: why an image file cannot be used, and what the user can do about it."""

from __future__ import annotations

from PIL import Image

from fedquilt.core.errors import UserError
from fedquilt.data.problems import Kind

PIXEL_LIMIT = Image.MAX_IMAGE_PIXELS or 89_478_485  # Pillow's guard against decompression bombs
# Bytes that decoding one image may take: as many as the largest colour image, decoded and copied.
BYTE_LIMIT = 6 * PIXEL_LIMIT

UNSAFE_NAME = Kind(
    "unsafe-image-name",
    "image names that point outside the image folder",
    "write names relative to the image folder, without '..', drive or leading '/', and replace "
    "links that point outside it by the files; nothing outside the folder is opened",
)
MISSING_IMAGE = Kind(
    "missing-image",
    "images that are not in the folder",
    "the image column holds file names relative to the image folder, with their endings; add the "
    "files, give another folder, or remove the rows",
)
UNREADABLE_IMAGE = Kind(
    "unreadable-image",
    "image files that cannot be decoded",
    "they are damaged, truncated, or not PNG, JPEG, TIFF or DICOM: export them again, or remove "
    "their rows",
)
UNSUPPORTED_IMAGE = Kind(
    "unsupported-image",
    "image files of a kind that is not supported",
    "expected one 8-bit or 16-bit grey or colour image per file: convert them, or remove their "
    "rows",
)
TOO_LARGE_IMAGE = Kind(
    "too-large-image",
    "images that are larger than is safe to decode",
    f"the limits are {PIXEL_LIMIT:,} pixels and {BYTE_LIMIT / 1e6:.0f} MB of memory: scale them "
    "down first, or remove their rows",
)
NEEDS_PYDICOM = Kind(
    "needs-pydicom",
    "DICOM files, which this installation cannot read",
    "install the DICOM reader: pip install 'fedquilt[dicom]'",
)


class BadImage(UserError):
    """Why one image cannot be used; never contains the image's name, which may be private."""

    def __init__(self, kind: Kind, detail: str) -> None:
        super().__init__(f"{detail}; {kind.advice}")
        self.kind, self.detail = kind, detail


def check_pixel_count(width: int, height: int, pixel_bytes: int = 0) -> None:
    """Raise :class:`BadImage` if the image is too large to decode safely.

    ``pixel_bytes`` is the memory that decoding takes for each pixel, if that is known already.
    """
    if width * height > PIXEL_LIMIT:
        raise BadImage(TOO_LARGE_IMAGE, f"{width} x {height} pixels")
    if width * height * pixel_bytes > BYTE_LIMIT:
        memory = width * height * pixel_bytes / 1e6
        detail = f"{width} x {height} pixels that take {memory:.0f} MB to decode"
        raise BadImage(TOO_LARGE_IMAGE, detail)
