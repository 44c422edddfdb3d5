"""ProcessGroup: the processes of one run, on one machine or several, over torch's gloo.

They are started by ``fedquilt run --processes`` or by torchrun. What they share travels as JSON and
safetensors, from and to the host; nothing that arrives can run code.
"""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor
from torch.distributed import (  # type: ignore[attr-defined]
    DistStoreError,
    PrefixStore,
    ProcessGroupGloo,
    Store,
    TCPStore,
)

from fedquilt.core.child_process import end_with_parent
from fedquilt.core.errors import UserError
from fedquilt.core.processes import ONE_PROCESS, Processes
from fedquilt.core.tree import Tree, flatten, on_host, tree_map, unflatten
from fedquilt.engines.launch import check_all_run

# One process may evaluate or write for hours while the others wait; a lost one is noticed at once.
PATIENCE = timedelta(days=7)
JOIN_PATIENCE = timedelta(minutes=10)  # for the others to start and import torch
AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"  # torchrun's agent holds the store
POLL_SECONDS = 0.05
JOINED = "joined"  # the key under which processes are counted
FAILURE = "failure"  # the key under which a process leaves why it ended


class OtherProcessEnded(UserError):
    """Raised in a process whose run cannot go on because another process ended."""


class ProcessGroup:
    def __init__(self, store: Store, number: int, count: int) -> None:
        self.number, self.count = number, count
        self._store = store
        self._gloo = ProcessGroupGloo(store, number, count, PATIENCE)

    def share(self, facts: Any) -> list[Any]:
        return [json.loads(each) for each in self._all_bytes(json.dumps(facts).encode())]

    def share_trees(self, tree: Mapping[str, Tree]) -> list[Any]:
        flat = {path: leaf.detach().contiguous() for path, leaf in flatten(on_host(tree)).items()}
        contents = self._all_bytes(save(flat) if flat else b"")
        return [unflatten(load(each)) if each else {} for each in contents]

    def add_up(self, tree: Tree) -> Any:
        """Leaves of one dtype travel as one buffer: one message instead of one for each leaf."""
        flat = flatten(on_host(tree))
        summed: dict[str, Tensor] = {}
        for dtype in sorted({leaf.dtype for leaf in flat.values()}, key=str):
            paths = sorted(path for path, leaf in flat.items() if leaf.dtype == dtype)
            buffer = torch.cat([flat[path].reshape(-1) for path in paths])
            self._call("allreduce", [buffer])
            pieces = buffer.split([flat[path].numel() for path in paths])
            summed |= {path: piece.reshape(flat[path].shape) for path, piece in zip(paths, pieces)}
        leaves_in_order = iter([summed[path] for path in flat])
        return tree_map(lambda _: next(leaves_in_order), tree)

    def leave_word(self, error: BaseException) -> None:
        """Tell the other processes, which will miss this one, why it ends."""
        if isinstance(error, OtherProcessEnded):
            return
        is_expected = isinstance(error, UserError | KeyboardInterrupt)
        text = str(error) or "it was interrupted" if is_expected else traceback.format_exc()
        reason = {"number": self.number, "text": text}
        with suppress(RuntimeError):  # the first process, which holds the store, has ended
            self._store.set(FAILURE, json.dumps(reason))

    def _all_bytes(self, content: bytes) -> list[bytes]:
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.count)]
        self._call("allgather", [lengths], [torch.tensor([len(content)])])
        most = max(int(length) for length in lengths)
        if most == 0:
            return [b""] * self.count
        mine = torch.frombuffer(bytearray(content.ljust(most, b"\0")), dtype=torch.uint8)
        found = [torch.empty(most, dtype=torch.uint8) for _ in range(self.count)]
        self._call("allgather", [found], [mine])
        return [each[: int(n)].numpy().tobytes() for each, n in zip(found, lengths)]

    def _call(self, operation: str, *arguments: Any) -> None:
        try:
            getattr(self._gloo, operation)(*arguments).wait()
        except RuntimeError as error:
            raise self._ended(error) from None

    def _ended(self, error: RuntimeError) -> OtherProcessEnded:
        """Say why another process ended, if it left word."""
        try:
            left = self._store.check([FAILURE])
            reason = json.loads(self._store.get(FAILURE)) if left else None
        except RuntimeError:
            reason = None
        if reason is None:
            return OtherProcessEnded(
                f"another process of this run ended without a word ({error}); was it killed?"
            )
        text = f"process {reason['number']} of {self.count} failed: {reason['text']}"
        return OtherProcessEnded(text)


@contextmanager
def processes_around() -> Iterator[Processes]:
    """Join the group that this process was started in, as torchrun's variables tell."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield ONE_PROCESS
        return
    end_with_parent()
    group = _joined(count)
    try:
        yield group
    except BaseException as error:
        group.leave_word(error)
        raise


def _joined(count: int) -> ProcessGroup:
    number = int(os.environ["RANK"])
    at_once = int(os.environ.get("LOCAL_WORLD_SIZE", str(count)))
    torch.set_num_threads(max(1, torch.get_num_threads() // at_once))
    place = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    try:
        store = TCPStore(
            os.environ["MASTER_ADDR"],
            int(os.environ["MASTER_PORT"]),
            is_master=number == 0 and os.environ.get(AGENT_STORE) != "True",
            timeout=JOIN_PATIENCE,
            wait_for_workers=False,
        )
        own = PrefixStore(f"fedquilt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)
        _wait_for_all(own, count)
        return ProcessGroup(own, number, count)
    except (RuntimeError, DistStoreError) as error:
        raise UserError(
            f"process {number} of {count} could not join the others at {place}: {error}"
        ) from None


def _wait_for_all(store: Store, count: int) -> None:
    """Return when every process has come this far; nobody waits for one that has ended."""
    end = time.monotonic() + JOIN_PATIENCE.total_seconds()
    joined = store.add(JOINED, 1)
    while joined < count:
        check_all_run()
        if time.monotonic() > end:
            raise UserError(
                f"{joined} of {count} processes came within {JOIN_PATIENCE}; look at the messages "
                "of the others, and whether they reach the first one's machine"
            )
        time.sleep(POLL_SECONDS)
        joined = store.add(JOINED, 0)


def device_of_process(device: str) -> str:
    """Return the GPU of this process where ``cuda`` is asked for: one after the other."""
    if device != "cuda" or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return device
    return f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % torch.cuda.device_count()}"
