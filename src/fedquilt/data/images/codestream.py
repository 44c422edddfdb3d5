"""The size that a compressed image gives in its own header, read without decoding it.

A DICOM file gives its rows and columns, but the decoder makes an image as large as the compressed
data say.
"""

from __future__ import annotations

# Start of frame markers of JPEG (not the tables C4, C8, CC) and of JPEG-LS.
FRAMES = {0xC0 + number for number in range(16)} - {0xC4, 0xC8, 0xCC} | {0xF7}
ALONE = {0x01, *range(0xD0, 0xD9)}  # markers without a length
JPEG, J2K, JP2 = b"\xff\xd8", b"\xff\x4f\xff\x51", b"jp2c"


def codestream_size(content: bytes) -> tuple[int, int] | None:
    """Return (width, height) of JPEG, JPEG-LS or JPEG 2000 data; None for other data."""
    if content.startswith(JPEG):
        return _jpeg_size(content)
    if not content.startswith(J2K):
        start = content.find(JP2, 0, 2**16)
        content = content[start + len(JP2) :] if start >= 0 else b""
    if not content.startswith(J2K) or len(content) < 24:
        return None
    right, bottom, left, top = (
        int.from_bytes(content[start : start + 4], "big") for start in (8, 12, 16, 20)
    )
    return right - left, bottom - top


def _jpeg_size(content: bytes) -> tuple[int, int] | None:
    place = len(JPEG)
    while place + 9 <= len(content):
        if content[place] != 0xFF:
            return None
        marker = content[place + 1]
        if marker in FRAMES:
            height, width = (
                int.from_bytes(content[start : start + 2], "big")
                for start in (place + 5, place + 7)
            )
            return width, height
        if marker == 0xFF or marker in ALONE:
            place += 1 if marker == 0xFF else 2
        else:
            place += 2 + int.from_bytes(content[place + 2 : place + 4], "big")
    return None
