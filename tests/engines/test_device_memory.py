"""Out-of-memory errors carry advice, and are not mistaken for a step that cannot be captured."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import torch
from support.tiny_federation import make_federation
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.data.batches import Batch
from fedquilt.engines.cuda_graph import device_memory
from fedquilt.engines.cuda_graph.engine import CudaGraphEngine
from fedquilt.engines.cuda_graph.graph_step import CaptureError, GraphStep
from fedquilt.methods.fedavg import FedAvg
from fedquilt.training.method import Local
from fedquilt.training.rounds import start_server

TORCH_MESSAGE = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of "
    "which 1.00 GiB is free. Process 7 has 7.00 GiB memory in use."
)


def _out_of_memory(*arguments: object) -> Tensor:
    raise torch.OutOfMemoryError(TORCH_MESSAGE)


@dataclass(frozen=True, kw_only=True)
class Greedy(FedAvg):
    def loss(self, local: Local, batch: Batch) -> Tensor:
        return _out_of_memory()


@pytest.mark.parametrize(
    ("slots", "advice"),
    [(4, r"use fewer clients at a time \(--slots 1\), smaller batches"), (1, "; use smaller")],
)
def test_out_of_memory_in_training_says_what_to_reduce(slots: int, advice: str) -> None:
    federation = make_federation()  # three clients, so no more slots than that
    engine = CudaGraphEngine(federation.task, federation.clients, device="cpu", slots=slots)
    method = Greedy()
    server = start_server(method, federation.task, engine)
    with pytest.raises(UserError, match=advice) as raised:
        engine.exchange(method, method.broadcast(server), 0, sorted(federation.clients))
    assert "Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB" in str(raised.value)
    assert "Process 7" not in str(raised.value)
    assert "--resume" in str(raised.value)


def test_out_of_memory_for_images_suggests_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_memory, "copy_images", _out_of_memory)
    federation = make_federation()
    with pytest.raises(UserError, match="smaller images, or keep them on the host"):
        CudaGraphEngine(federation.task, federation.clients, device="cpu")


def test_out_of_memory_is_not_a_capture_error(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def capturing(*arguments: object, **settings: object):  # type: ignore[no-untyped-def]
        yield

    monkeypatch.setattr(torch.cuda, "graph", capturing)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    with pytest.raises(torch.OutOfMemoryError):
        GraphStep(_out_of_memory).capture(None, None)  # type: ignore[arg-type]

    def unfit() -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    with pytest.raises(CaptureError, match=r"^operation not permitted when stream is capturing$"):
        GraphStep(unfit).capture(None, None)
