"""Frames on a pipe: eight bytes of length, then the content."""

from __future__ import annotations

from typing import IO

LENGTH_BYTES = 8
MAX_BYTES = 2**34  # a larger length means that the other end writes no frames


def write_frame(pipe: IO[bytes], content: bytes) -> None:
    pipe.write(len(content).to_bytes(LENGTH_BYTES, "big"))
    pipe.write(content)
    pipe.flush()


def read_frame(pipe: IO[bytes]) -> bytes:
    """Return the next frame; raise EOFError if the other end has closed the pipe."""
    length = int.from_bytes(_read_exactly(pipe, LENGTH_BYTES), "big")
    if length > MAX_BYTES:
        raise ValueError(f"a frame of {length} bytes; expected at most {MAX_BYTES}")
    return _read_exactly(pipe, length)


def _read_exactly(pipe: IO[bytes], count: int) -> bytes:
    content = pipe.read(count)
    if content is None or len(content) < count:
        raise EOFError
    return content
