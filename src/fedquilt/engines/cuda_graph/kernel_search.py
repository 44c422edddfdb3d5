"""A share of a GPU's processors, as large as a client's among others, to choose kernels on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

GRANULE = 8  # processors are handed out in eights on the newest devices, in fewer on older ones

log = logging.getLogger(__name__)


class DeviceShare:
    """A stream whose work gets one of ``parts`` of the processors.

    cuDNN times its kernels and keeps the fastest. Those that are fastest with the whole device to
    themselves are not the ones that are fastest beside other clients' (docs/gpu.md has numbers).
    """

    def __init__(self, device: torch.device, parts: int) -> None:
        from torch.cuda.green_contexts import GreenContext  # of recent versions of torch only

        properties = torch.cuda.get_device_properties(device)
        count = properties.multi_processor_count // parts
        place = torch.cuda.current_device() if device.index is None else device.index
        self._context = GreenContext.create(
            num_sms=-(-max(count, 1) // GRANULE) * GRANULE, device_id=place
        )
        self._stream = _stream_in(self._context)
        with self.in_use():  # fails here, if it does, and not in the middle of a run
            torch.zeros(1, device=device).add_(1)
        self._stream.synchronize()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Within it, work is queued on the share, in order with what is queued before and after."""
        outside = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(outside)
        with torch.cuda.stream(self._stream):
            yield
        outside.wait_stream(self._stream)


def share_of(device: torch.device, parts: int) -> DeviceShare | None:
    """None where there is nothing to share, or the driver or torch cannot divide a device."""
    if device.type != "cuda" or parts < 2:
        return None
    try:
        return DeviceShare(device, parts)
    except (ImportError, AttributeError, RuntimeError) as error:
        log.info("kernels are chosen on the whole device: %s", error)
        return None


def _stream_in(context: Any) -> torch.cuda.Stream:
    if hasattr(context, "Stream"):
        stream: torch.cuda.Stream = context.Stream()
        return stream
    context.set_context()  # older: the context's own stream is the current one within it
    try:
        return torch.cuda.current_stream()
    finally:
        context.pop_context()
