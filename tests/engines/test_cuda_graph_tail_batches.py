"""The shorter batch that an epoch ends with: its kernels, its memory, and when it is recorded."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from support.tiny_federation import Federation, make_federation
from torch import Tensor

from benchmarks.engine_agreement import trained
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
class Looking(FedAvg):
    """Notes the lengths of batches, and whether kernels would be searched for them."""

    def loss(self, local: Local, batch: Batch) -> Tensor:
        EVENTS.append(f"{len(batch.rows)} {torch.backends.cudnn.benchmark}")
        return super().loss(local, batch)


def test_no_kernels_are_searched_for_the_rest_of_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    federation = make_federation().shortened(site_0=11, site_1=8, site_2=8)
    EVENTS.clear()
    trained(federation, Looking(training=LocalTraining(batch_size=8)), _engine(federation, slots=2))
    assert set(EVENTS) == {"8 True", "3 False"}
    assert torch.backends.cudnn.benchmark


def test_the_rest_of_an_epoch_takes_no_room_for_more_steps_than_it_is() -> None:
    federation = make_federation().shortened(site_0=11, site_1=5, site_2=8)
    engine = _engine(federation, slots=3)
    training = LocalTraining(batch_size=8, epochs=2)
    trained(federation, FedAvg(training=training), engine)
    found = {
        tuple(recording.chunk._places[0]["rows"].shape)
        for slot in engine._slots
        for recording in slot.recordings.values()
    }
    # site-0 ends two epochs with three images each, site-1 never has more than five
    assert found == {(MOST_STEPS, 8), (1, 3), (2, 5)}


@pytest.mark.parametrize(
    ("slots", "recorded"),
    [
        (1, ["3 8", "", ""]),  # site-0 has 8 and 3 images a step, the others have 8 twice
        (2, ["3 8 8", "", ""]),
    ],
)
def test_a_step_is_recorded_when_a_slot_meets_its_length_for_the_first_time(
    slots: int, recorded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths: list[str] = []

    def record(player: GraphStep, stream: object, memory: object) -> None:
        lengths.append(EVENTS[-1].split()[0])  # of the trial just before

    monkeypatch.setattr(Slot, "records", True)
    monkeypatch.setattr(GraphStep, "record", record)
    federation = make_federation(rounds=3).shortened(site_0=11, site_1=16, site_2=16)
    method = Looking(training=LocalTraining(batch_size=8))
    engine = _engine(federation, slots=slots)
    server, found = start_server(method, federation.task, engine), []
    for _ in run_rounds(method, federation.task, engine, server):
        found.append(" ".join(sorted(lengths)))
        lengths.clear()
    assert found == recorded


def test_a_client_goes_to_a_slot_that_has_met_a_rest_of_its_length() -> None:
    annotated = ((0,), (1,), (2,), (0, 1))
    federation = make_federation(rounds=3, annotated=annotated, images_each=30)
    federation = federation.shortened(site_0=11, site_1=13, site_2=21, site_3=19)
    engine = _engine(federation, slots=2)
    trained(federation, FedAvg(training=LocalTraining(batch_size=8)), engine)
    # Rests of 3, 5, 5 and 3 images: without a choice the third would follow the first.
    assert [slot.rests_met for slot in engine._slots] == [{3}, {5}]
