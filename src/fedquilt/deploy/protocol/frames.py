"""Messages on a pipe: eight bytes of length, then the message."""

from __future__ import annotations

from typing import IO

LENGTH_BYTES = 8
LARGEST = 2**34  # a pipe that claims more is not speaking this


def write_frame(pipe: IO[bytes], content: bytes) -> None:
    pipe.write(len(content).to_bytes(LENGTH_BYTES, "big"))
    pipe.write(content)
    pipe.flush()


def read_frame(pipe: IO[bytes]) -> bytes:
    """Raises EOFError when the other end is gone."""
    length = int.from_bytes(_exactly(pipe, LENGTH_BYTES), "big")
    if length > LARGEST:
        raise ValueError(f"a frame of {length} bytes")
    return _exactly(pipe, length)


def _exactly(pipe: IO[bytes], count: int) -> bytes:
    content = pipe.read(count)
    if content is None or len(content) < count:
        raise EOFError
    return content
