"""Tail batches: their kernels, their memory, and when they are captured."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from support.engine_agreement import train
from support.tiny_federation import Federation, make_federation
from torch import Tensor

from fedquilt.data.batches import Batch
from fedquilt.engines.cuda_graph.batch_chunk import MOST_STEPS
from fedquilt.engines.cuda_graph.engine import CudaGraphEngine
from fedquilt.engines.cuda_graph.graph_step import GraphStep
from fedquilt.engines.cuda_graph.slot import Slot
from fedquilt.methods.fedavg import FedAvg
from fedquilt.training.local_training import LocalTraining
from fedquilt.training.method import Local
from fedquilt.training.rounds import run_rounds, start_server

EVENTS: list[str] = []


def _engine(federation: Federation, slots: int) -> CudaGraphEngine:
    return CudaGraphEngine(federation.task, federation.clients, device="cpu", slots=slots)


@dataclass(frozen=True, kw_only=True)
class Logging(FedAvg):
    """Logs batch sizes, and whether kernels would be searched for them."""

    def loss(self, local: Local, batch: Batch) -> Tensor:
        EVENTS.append(f"{len(batch.rows)} {torch.backends.cudnn.benchmark}")
        return super().loss(local, batch)


def test_no_kernels_are_searched_for_tail_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    federation = make_federation().shortened(site_0=11, site_1=8, site_2=8)
    EVENTS.clear()
    train(federation, Logging(training=LocalTraining(batch_size=8)), _engine(federation, slots=2))
    assert set(EVENTS) == {"8 True", "3 False"}
    assert torch.backends.cudnn.benchmark


def test_a_tail_batch_chunk_is_no_longer_than_needed() -> None:
    federation = make_federation().shortened(site_0=11, site_1=5, site_2=8)
    engine = _engine(federation, slots=3)
    training = LocalTraining(batch_size=8, epochs=2)
    train(federation, FedAvg(training=training), engine)
    found = {
        tuple(captured.chunk._buffers[0]["rows"].shape)
        for slot in engine._slots
        for captured in slot.captured_steps.values()
    }
    # site-0 ends two epochs with three images each, site-1 has five images in all
    assert found == {(MOST_STEPS, 8), (1, 3), (2, 5)}


@pytest.mark.parametrize(
    ("slots", "captured"),
    [
        (1, ["3 8", "", ""]),  # site-0 has 8 and 3 images a step, the others have 8 twice
        (2, ["3 8 8", "", ""]),
    ],
)
def test_a_step_is_captured_when_a_slot_first_sees_its_batch_size(
    slots: int, captured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[str] = []

    def capture(step: GraphStep, stream: object, memory_pool: object) -> None:
        sizes.append(EVENTS[-1].split()[0])  # of the warm-up just before

    monkeypatch.setattr(Slot, "captures", True)
    monkeypatch.setattr(GraphStep, "capture", capture)
    federation = make_federation(rounds=3).shortened(site_0=11, site_1=16, site_2=16)
    method = Logging(training=LocalTraining(batch_size=8))
    engine = _engine(federation, slots=slots)
    server, found = start_server(method, federation.task, engine), []
    for _ in run_rounds(method, federation.task, engine, server):
        found.append(" ".join(sorted(sizes)))
        sizes.clear()
    assert found == captured


def test_a_client_gets_a_slot_that_captured_its_tail_batch_size() -> None:
    annotated = ((0,), (1,), (2,), (0, 1))
    federation = make_federation(rounds=3, annotated=annotated, images_each=30)
    federation = federation.shortened(site_0=11, site_1=13, site_2=21, site_3=19)
    engine = _engine(federation, slots=2)
    train(federation, FedAvg(training=LocalTraining(batch_size=8)), engine)
    # Tail batches of 3, 5, 5 and 3 images: the third client must not take the first free slot.
    assert [slot.tail_sizes for slot in engine._slots] == [{3}, {5}]
