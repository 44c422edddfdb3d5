"""A slot: a network, a stream and fixed tensors for one client at a time."""

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
from fedquilt.engines.cuda_graph.device_memory import FixedTree, fill, fixed_copy, signature
from fedquilt.engines.cuda_graph.graph_step import GraphStep
from fedquilt.engines.cuda_graph.kernel_search import DeviceShare
from fedquilt.models.network import Network
from fedquilt.training.client import Workspace
from fedquilt.training.local_optimizer import LocalOptimizer
from fedquilt.training.method import State
from fedquilt.training.task import Task


class Broadcast:
    """One object a round, so that a slot knows whether it has taken in ``shared`` already.

    Args:
        laid_out: a tensor on the device, in memory as in the slots.
    """

    def __init__(
        self, payload: Mapping[str, Tree | PerClient], laid_out: Callable[[Tensor], Tensor]
    ) -> None:
        self._laid_out = laid_out
        shared, self._own = shared_and_own(payload)
        self.shared: State = tree_map(laid_out, shared)

    def own(self, client: str) -> State:
        """What nobody else gets."""
        parts: State = tree_map(self._laid_out, addressed(self._own, client))
        return parts


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recording:
    """A step that can be played, and the chunk it reads its batches from."""

    player: GraphStep
    chunk: Chunk


class Slot:
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
        stop_counting_batches(network)
        if channels_last:
            network = network.to(memory_format=torch.channels_last)
        self.workspace = Workspace(network, frozen, device, prediction_batch(task, device))
        self.channels_last = channels_last
        self.draws_on_device = draws_on_device  # augmentation; or the reference's own draws
        self._share = share
        self.loss = torch.zeros((), device=device)
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.memory: Any = torch.cuda.graph_pool_handle() if self.stream else None
        self.optimizers: dict[Hashable, LocalOptimizer] = {}
        self.recordings: dict[Hashable, Recording] = {}
        self._places: dict[Hashable, Tree] = {}
        self._received: tuple[Broadcast, FixedTree] | None = None
        self.rests_met: set[int] = set()  # how many images its clients had beyond whole batches
        self.unrecordable: str | None = None  # why steps are not recorded, if they are not

    @property
    def records(self) -> bool:
        """Whether steps are recorded here: on a GPU, unless one could not be."""
        return self.stream is not None and self.unrecordable is None

    def at_work(self) -> AbstractContextManager[object]:
        """Within it, work is queued on the slot's own stream."""
        return torch.cuda.stream(self.stream) if self.stream else nullcontext()

    def choosing_kernels(self) -> AbstractContextManager[object]:
        """Within it, on as much of the device as the slot will have while all are at work."""
        return self._share.in_use() if self._share else nullcontext()

    def wait_for_others(self) -> None:
        """Work queued from now on begins after what the caller's stream has been given so far."""
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))

    def make_others_wait(self) -> None:
        """Work that the caller's stream gets from now on begins after what this slot was given."""
        if self.stream is not None:
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)

    def hold(self, role: str, tree: Tree) -> FixedTree:
        """The tree's numbers in the places kept for trees of this role and shape."""
        shape = signature(tree)
        key = (role, shape)
        if key in self._places:
            fill(self._places[key], tree)
        else:
            self._places[key] = fixed_copy(tree, channels_last=self.channels_last)
        return FixedTree(self._places[key], shape)

    def receive(self, broadcast: Broadcast, client: str) -> FixedTree:
        """What the client gets; what all get is taken in once, by the first of them here."""
        if self._received is None or self._received[0] is not broadcast:
            self._received = (broadcast, self.hold("received by all", broadcast.shared))
        shared, own = self._received[1], self.hold("received", broadcast.own(client))
        return FixedTree({**shared.tree, **own.tree}, shared.signature + own.signature)

    def give_up_recording(self, reason: str) -> None:
        if self.unrecordable is None:
            log.warning("steps are played without recording, which is slower: %s", reason)
        self.unrecordable = reason
        self.recordings.clear()

    def forget(self) -> None:
        """Let go of everything that belongs to one method."""
        self.optimizers.clear()
        self.recordings.clear()
        self._places.clear()
        self._received = None
        self.rests_met.clear()
        self.unrecordable = None


def stop_counting_batches(network: nn.Module) -> None:
    """Batch norm's counters are never sent, and nobody reads them: a kernel less a step for each.

    With a momentum of None running statistics are means over all batches, which need the count.
    """
    for module in network.modules():
        if isinstance(module, _BatchNorm) and module.momentum is not None:
            module.num_batches_tracked = None


def prediction_batch(task: Task, device: torch.device) -> int:
    """A CPU is fastest with little at a time, a GPU with much, as far as memory goes."""
    channels, height, width = task.image_shape
    most = 2**25 // (channels * height * width)
    return 256 if device.type == "cpu" else max(64, min(2048, most))
