"""Slot: a network, a CUDA stream and fixed buffers for one client at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedquilt.core.payload import PerClient, addressed, shared_and_own
from fedquilt.core.tree import Tree, tree_map
from fedquilt.engines.cuda_graph.batch_chunk import Chunk
from fedquilt.engines.cuda_graph.device_memory import Buffers, FixedTree
from fedquilt.engines.cuda_graph.graph_step import GraphStep
from fedquilt.engines.cuda_graph.kernel_search import DeviceShare
from fedquilt.models.network import FlatWeights, Network
from fedquilt.training.client import Workspace
from fedquilt.training.local_optimizer import LocalOptimizer
from fedquilt.training.method import State
from fedquilt.training.task import Task

log = logging.getLogger(__name__)


class Broadcast:
    """A round's broadcast on the device; all slots read the same copy of the shared parts.

    Args:
        payload: what the server sends: to all clients, or to each its own.
        buffers: where the shared parts go; no client may run meanwhile.
        to_layout: moves a tensor to the device, in the slots' memory format.
    """

    def __init__(
        self,
        payload: Mapping[str, Tree | PerClient],
        buffers: Buffers,
        to_layout: Callable[[Tensor], Tensor],
    ) -> None:
        self._to_layout = to_layout
        shared, self._own = shared_and_own(payload)
        self.shared = buffers.load("received by all", tree_map(to_layout, shared))

    def own(self, client: str) -> State:
        """Return the parts that only this client receives."""
        parts: State = tree_map(self._to_layout, addressed(self._own, client))
        return parts


@dataclass(frozen=True)
class CapturedStep:
    """A step, and the chunk it reads its batches from."""

    step: GraphStep
    chunk: Chunk


class Slot:
    """Holds one client's tensors at fixed addresses, as replaying a CUDA graph requires."""

    def __init__(
        self,
        task: Task,
        frozen: Network,
        device: torch.device,
        *,
        channels_last: bool,
        draws_on_device: bool = False,
        share: DeviceShare | None = None,
    ) -> None:
        network = task.build_network().to(device).train()
        disable_batch_counts(network)
        if channels_last:
            network = network.to(memory_format=torch.channels_last)
        self.weights = FlatWeights(network, channels_last=channels_last)
        self.workspace = Workspace(network, frozen, device, prediction_batch_size(task, device))
        self.channels_last = channels_last
        self.draws_on_device = draws_on_device  # for augmentation; else as the sequential engine
        self._share = share
        self.loss = torch.zeros((), device=device)
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.memory_pool: Any = torch.cuda.graph_pool_handle() if self.stream else None
        self.optimizers: dict[Hashable, LocalOptimizer] = {}
        self.captured_steps: dict[Hashable, CapturedStep] = {}
        self.buffers = Buffers(channels_last=channels_last)
        self.tail_sizes: set[int] = set()  # tail batch sizes of the clients it has run
        self.capture_failure: str | None = None  # why steps run eagerly, if they do

    @property
    def captures(self) -> bool:
        """Whether steps are captured: on a GPU, until a capture fails."""
        return self.stream is not None and self.capture_failure is None

    def on_stream(self) -> AbstractContextManager[object]:
        """Queue work on the slot's stream."""
        return torch.cuda.stream(self.stream) if self.stream else nullcontext()

    def on_share(self) -> AbstractContextManager[object]:
        """Queue work on the part of the device that the slot has while all slots are busy."""
        return self._share.in_use() if self._share else nullcontext()

    def wait_for_caller(self) -> None:
        """Make later work of this slot wait for the work queued on the caller's stream."""
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))

    def make_caller_wait(self) -> None:
        """Make later work on the caller's stream wait for the work queued on this slot."""
        if self.stream is not None:
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)

    def receive(self, broadcast: Broadcast, client: str) -> FixedTree:
        """Return what the client receives, with its own parts in the slot's buffers."""
        shared, own = broadcast.shared, self.buffers.load("received", broadcast.own(client))
        return FixedTree({**shared.tree, **own.tree}, shared.signature + own.signature)

    def stop_capturing(self, reason: str) -> None:
        if self.capture_failure is None:
            log.warning("steps run without CUDA graphs, which is slower: %s", reason)
        self.capture_failure = reason
        self.captured_steps.clear()

    def clear(self) -> None:
        """Drop everything that belongs to one method."""
        self.optimizers.clear()
        self.captured_steps.clear()
        self.buffers.clear()
        self.tail_sizes.clear()
        self.capture_failure = None


def disable_batch_counts(network: nn.Module) -> None:
    """Stop batch norm from counting batches: it saves a kernel per layer, and nothing reads them.

    Except with a momentum of None: there running statistics are means over all batches.
    """
    for module in network.modules():
        if isinstance(module, _BatchNorm) and module.momentum is not None:
            module.num_batches_tracked = None


def prediction_batch_size(task: Task, device: torch.device) -> int:
    """Return a small batch size for a CPU, and as large a one as memory allows for a GPU."""
    channels, height, width = task.image_shape
    most = 2**25 // (channels * height * width)
    return 256 if device.type == "cpu" else max(64, min(2048, most))
