"""A device whose memory is full: said with what to do, and not taken for a step's own fault."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import torch
from support.tiny_federation import make_federation
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.data.batches import Batch
from fedquilt.engines.cuda_graph import device_memory as device_data
from fedquilt.engines.cuda_graph.engine import CudaGraphEngine
from fedquilt.engines.cuda_graph.graph_step import GraphStep, Unrecordable
from fedquilt.methods.fedavg import FedAvg
from fedquilt.training.method import Local
from fedquilt.training.rounds import start_server

TORCHS = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of "
    "which 1.00 GiB is free. Process 7 has 7.00 GiB memory in use."
)


def _full(*arguments: object) -> Tensor:
    raise torch.OutOfMemoryError(TORCHS)


@dataclass(frozen=True, kw_only=True)
class Greedy(FedAvg):
    def loss(self, local: Local, batch: Batch) -> Tensor:
        return _full()


@pytest.mark.parametrize(
    ("slots", "advice"),
    [(4, r"take fewer clients at a time \(--slots 1\), smaller batches"), (1, "; take smaller")],
)
def test_training_without_room_says_what_to_take_less_of(slots: int, advice: str) -> None:
    federation = make_federation()  # three clients, so no more slots than that
    engine = CudaGraphEngine(federation.task, federation.clients, device="cpu", slots=slots)
    method = Greedy()
    server = start_server(method, federation.task, engine)
    with pytest.raises(UserError, match=advice) as raised:
        engine.exchange(method, method.broadcast(server), 0, sorted(federation.clients))
    assert "Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB" in str(raised.value)
    assert "Process 7" not in str(raised.value)
    assert "--resume" in str(raised.value)


def test_images_without_room_may_stay_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_data, "copied", _full)
    federation = make_federation()
    with pytest.raises(UserError, match="smaller images, or leave them on the host"):
        CudaGraphEngine(federation.task, federation.clients, device="cpu")


def test_a_full_memory_does_not_make_a_step_unrecordable(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def recording(*arguments: object, **settings: object):  # type: ignore[no-untyped-def]
        yield

    monkeypatch.setattr(torch.cuda, "graph", recording)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    with pytest.raises(torch.OutOfMemoryError):
        GraphStep(_full).record(None, None)  # type: ignore[arg-type]

    def unfit() -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    with pytest.raises(Unrecordable, match=r"^operation not permitted when stream is capturing$"):
        GraphStep(unfit).record(None, None)
