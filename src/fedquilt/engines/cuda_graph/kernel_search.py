"""DeviceShare: a part of a GPU's multiprocessors, on which cuDNN searches for kernels."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import nn

GRANULARITY = 8  # multiprocessors are assigned in eights on recent GPUs, in fewer on older ones

log = logging.getLogger(__name__)


class DeviceShare:
    """A stream that runs on one of ``parts`` equal parts of the multiprocessors.

    cuDNN times its kernels and keeps the fastest. The fastest kernel on an idle device is not the
    fastest one beside other clients' kernels (numbers: docs/performance/gpu.md).
    """

    def __init__(self, device: torch.device, parts: int) -> None:
        from torch.cuda.green_contexts import GreenContext  # recent versions of torch only

        properties = torch.cuda.get_device_properties(device)
        count = properties.multi_processor_count // parts
        index = torch.cuda.current_device() if device.index is None else device.index
        self._context = GreenContext.create(
            num_sms=-(-max(count, 1) // GRANULARITY) * GRANULARITY, device_id=index
        )
        self._stream = _stream_in(self._context)
        self._is_unfit = False
        with self.in_use():  # fail here, if at all, and not in the middle of a run
            torch.zeros(1, device=device).add_(1)
        if self._is_unfit:
            raise RuntimeError("a part of the device runs nothing")
        self._stream.synchronize()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Queue work on the share, ordered with the work before and after it.

        Work that cannot run there, as some kernels need the whole device, is given up: the share
        is not used again, and what follows searches for kernels where it runs.
        """
        if self._is_unfit:
            yield
            return
        outside = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(outside)
        try:
            with torch.cuda.stream(self._stream):
                yield
        except torch.OutOfMemoryError:  # a RuntimeError too, but not the share's fault
            raise
        except RuntimeError as error:
            self._is_unfit = True
            log.warning("kernels are searched on the whole device; on a part of it: %s", error)
            forget_failure(self._stream.device)
        outside.wait_stream(self._stream)


def forget_failure(device: torch.device) -> None:
    """Let small steps meet the failed launch, which cuDNN reports at its next check once more."""
    images, one = torch.ones(2, 1, 2, 2, device=device), torch.ones(1, device=device)
    for _ in range(2):
        with suppress(RuntimeError):
            torch.nn.functional.batch_norm(images, one, one, one, one)


def has_attention(network: nn.Module) -> bool:
    """Whether kernels must be searched on the whole device.

    On an H200 (torch 2.11) cuDNN's batch norm failed on a part of it in every run of FedLGT with
    ResNet-18, and never without a transformer behind the backbone; why is not known.
    """
    return any(isinstance(module, nn.MultiheadAttention) for module in network.modules())


def share_of(device: torch.device, parts: int) -> DeviceShare | None:
    """Return a share, or None for one part, a CPU, or a driver or torch that cannot divide it."""
    if device.type != "cuda" or parts < 2:
        return None
    try:
        return DeviceShare(device, parts)
    except (ImportError, AttributeError, RuntimeError) as error:
        log.info("kernels are searched on the whole device: %s", error)
        return None


def _stream_in(context: Any) -> torch.cuda.Stream:
    if hasattr(context, "Stream"):
        stream: torch.cuda.Stream = context.Stream()
        return stream
    context.set_context()  # older torch: inside the context, its stream is the current one
    try:
        return torch.cuda.current_stream()
    finally:
        context.pop_context()
