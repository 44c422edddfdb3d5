"""The CUDA graph engine against the sequential one where streams matter, on a CPU and a GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.engine_agreement import TOLERANCE, largest_gap, train
from support.tiny_federation import Federation, make_federation, make_method

from fedquilt.engines.cuda_graph.engine import CudaGraphEngine
from fedquilt.runs.checkpoint import Checkpoints
from fedquilt.training.method import Method
from fedquilt.training.rounds import run_rounds, start_server

MANY = ((0,), (1,), (2,), (0, 1), (1, 2), (0,), (2,))  # what each of seven clients annotates
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
every_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])


def _unequal() -> Federation:
    """Seven clients of seven sizes, so that most epochs end with a tail batch."""
    sizes = {f"site_{index}": 9 + 3 * index for index in range(len(MANY))}
    return make_federation(annotated=MANY, images_each=30).shortened(**sizes)


def _by_descent(name: str) -> Method:
    method = make_method(name)
    return replace(method, training=replace(method.training, optimizer="sgd"))


@every_device
@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("name", ["scaffold", "fedmlp"])  # states as large as a model, and stages
def test_few_slots_and_no_room_for_states(name: str, slots: int, device: str) -> None:
    """Slots are reused, and client states are kept in pinned memory."""
    method, federation = _by_descent(name), _unequal()
    engine = CudaGraphEngine(
        federation.task,
        federation.clients,
        device=device,
        slots=slots,
        exact=True,
        device_state_bytes=0,
    )
    found = train(federation, method, engine)
    assert engine.capture_failure is None
    assert largest_gap(train(federation, method, federation.engine()), found) <= TOLERANCE


@every_device
def test_a_resumed_run_agrees_with_an_uninterrupted_one(device: str, tmp_path: Path) -> None:
    method, federation = _by_descent("scaffold"), _unequal()

    def engine(states: Checkpoints) -> CudaGraphEngine:
        return CudaGraphEngine(
            federation.task, federation.clients, states=states, device=device, slots=3, exact=True
        )

    whole = train(federation, method, engine(Checkpoints(tmp_path / "whole")))
    cut = Checkpoints(tmp_path / "cut")
    begun = engine(cut)
    server = start_server(method, federation.task, begun)
    round_ = next(run_rounds(method, federation.task, begun, server))
    begun.write_states()
    cut.advance(1, round_.server)
    cut.save()
    again = Checkpoints(tmp_path / "cut")
    saved, _ = again.restore()
    assert saved is not None
    for round_ in run_rounds(
        method, federation.task, engine(again), saved.server, first_round=saved.round_count
    ):
        server = round_.server
    assert largest_gap(whole, server) <= TOLERANCE
