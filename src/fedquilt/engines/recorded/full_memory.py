"""A GPU whose memory is full: what was found, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fedquilt.errors import UserError

SENTENCES = 3  # of torch's message: what happened, what was wanted, what the device has


@contextmanager
def advice_if_full(advice: str) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        found = ". ".join(str(error).split(". ")[:SENTENCES])
        raise UserError(f"the device's memory is full ({found}); {advice}") from error


def fewer_at_a_time(slots: int) -> str:
    """The advice to a run that trains."""
    fewer = f"fewer clients at a time (--slots {slots // 2}), " if slots > 1 else ""
    return (
        f"take {fewer}smaller batches (method.training.batch_size) or smaller images; "
        "--resume goes on from the last saved round"
    )
