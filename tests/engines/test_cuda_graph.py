"""The CUDA graph engine: fixed buffers, chunks of steps, slots, steps that cannot be captured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from support.tiny_federation import Federation, make_federation, make_method
from torch import Tensor, nn, tensor

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Update
from fedquilt.core.tree import Weights, same_bits, signature
from fedquilt.data.batches import Batch, Pool
from fedquilt.data.client_data import ClientData
from fedquilt.engines.cuda_graph import device_memory
from fedquilt.engines.cuda_graph.batch_chunk import chunk_steps, segments
from fedquilt.engines.cuda_graph.device_memory import fill, fixed_copy, on_device
from fedquilt.engines.cuda_graph.engine import CudaGraphEngine
from fedquilt.engines.cuda_graph.graph_step import CaptureError, StepLocal
from fedquilt.engines.cuda_graph.slot import disable_batch_counts
from fedquilt.methods.fedavg import FedAvg
from fedquilt.runs.checkpoint import Checkpoints
from fedquilt.training.local_training import LocalTraining
from fedquilt.training.method import Local, Method, State
from fedquilt.training.rounds import run_rounds, start_server

CPU = torch.device("cpu")


def _engine(federation: Federation, **settings: object) -> CudaGraphEngine:
    options = {"device": "cpu", "slots": 2, "channels_last": False} | settings
    return CudaGraphEngine(federation.task, federation.clients, **options)  # type: ignore[arg-type]


def _train(federation: Federation, method: Method, engine: CudaGraphEngine) -> State:
    server = start_server(method, federation.task, engine)
    for round_ in run_rounds(method, federation.task, engine, server):
        server = round_.server
    return server


def _pools(views: int) -> tuple[Pool, ...]:
    return (Pool(32, ("weak",) * views),)


def test_a_tree_is_filled_in_place() -> None:
    buffers = fixed_copy({"a": {"b": tensor([1.0, 2.0])}, "c": tensor(3)}, channels_last=False)
    address = buffers["a"]["b"].data_ptr()
    fill(buffers, {"a": {"b": tensor([5.0, 6.0])}, "c": tensor(7)})
    assert buffers["a"]["b"].tolist() == [5.0, 6.0]
    assert buffers["c"].item() == 7
    assert buffers["a"]["b"].data_ptr() == address


def test_values_that_swap_buffers_are_read_before_they_are_written() -> None:
    buffers = fixed_copy({"new": tensor([1.0]), "old": tensor([2.0])}, channels_last=False)
    fill(buffers, {"new": tensor([3.0]), "old": buffers["new"]})
    assert {name: buffer.item() for name, buffer in buffers.items()} == {"new": 3.0, "old": 1.0}


def test_signatures_differ_by_name_shape_and_dtype() -> None:
    first = signature({"a": torch.zeros(2, 3)})
    assert first == signature({"a": torch.ones(2, 3)})
    assert first != signature({"b": torch.zeros(2, 3)})
    assert first != signature({"a": torch.zeros(3, 2)})
    assert first != signature({"a": torch.zeros(2, 3, dtype=torch.float64)})


def test_steps_are_split_at_a_smaller_batch_and_after_the_most() -> None:
    sizes = [4, 4, 4, 2, 4, 4, 4, 2]  # two epochs of 14 images in fours
    steps = [(torch.arange(size),) for size in sizes]
    found = list(segments(steps, [tensor([float(number)]) for number in range(8)], most=2))
    assert [segment.rows[0].shape for segment in found] == [(2, 4), (1, 4), (1, 2)] * 2
    assert [segment.drawn.flatten().tolist() for segment in found] == [
        [0.0, 1.0],
        [2.0],
        [3.0],
        [4.0, 5.0],
        [6.0],
        [7.0],
    ]


def test_a_chunk_has_as_many_steps_as_memory_allows() -> None:
    pools = _pools(views=1)
    # 32 images of 3 x 64 x 64 floats are 1.5 MiB, so 128 MiB hold 85 steps.
    assert chunk_steps(pools, (3, 64, 64), 2**27) == 85
    assert chunk_steps(_pools(views=2), (3, 64, 64), 2**27) == 42
    assert chunk_steps(pools, (1, 8, 8), 2**27) == 128
    assert chunk_steps(pools, (3, 4096, 4096), 2**27) == 1


def test_images_of_several_clients_are_copied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_memory, "IMAGES_PER_COPY", 7)
    clients = make_federation().clients
    shared = next(iter(clients.values())).images
    sharing = {name: replace(data, images=shared) for name, data in clients.items()}
    for channels_last in (False, True):
        copies: dict[str, ClientData] = on_device(sharing, CPU, channels_last=channels_last)
        assert len({data.images.data_ptr() for data in copies.values()}) == 1
        assert torch.equal(next(iter(copies.values())).images, shared)


@pytest.mark.parametrize("slots", [1, 2, 3, 8])
def test_the_number_of_slots_changes_no_bit(slots: int) -> None:
    federation, method = make_federation(), make_method("fedmlp")
    reference = _train(federation, method, _engine(federation, slots=1))
    assert same_bits(_train(federation, method, _engine(federation, slots=slots)), reference)


def test_clients_of_unequal_size() -> None:
    federation, method = make_federation().shortened(site_0=3, site_1=17), make_method("scaffold")
    by_descent = replace(method, training=replace(method.training, optimizer="sgd"))
    found = _train(federation, by_descent, _engine(federation))
    assert same_bits(found, federation.train(by_descent))


@dataclass(frozen=True, kw_only=True)
class Logging(FedAvg):
    """Logs when clients begin and finish their rounds."""

    def begin(self, local: Local) -> State:
        EVENTS.append(f"begin {local.data.name}")
        return super().begin(local)

    def loss(self, local: Local, batch: Batch) -> Tensor:
        EVENTS.append("step")
        return super().loss(local, batch)

    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        EVENTS.append(f"finish {local.data.name}")
        return super().finish(local, weights, steps)


EVENTS: list[str] = []


def test_a_client_gets_lead_steps_and_is_closed_while_others_run() -> None:
    federation = make_federation().shortened(site_0=10, site_1=20, site_2=15)
    method = Logging(training=LocalTraining(batch_size=1))  # an image is a step
    engine = _engine(federation, slots=3)
    server = start_server(method, federation.task, engine)
    engine.exchange(
        method, method.broadcast(server), 0, sorted(federation.clients)
    )  # with warm-ups
    EVENTS.clear()
    engine.exchange(method, method.broadcast(server), 1, sorted(federation.clients))
    rounds = [event for event in EVENTS if event != "step"]
    assert rounds[:3] == ["begin site-0", "begin site-1", "begin site-2"]
    assert rounds[3:] == ["finish site-0", "finish site-2", "finish site-1"]  # as they are done
    steps = [EVENTS[: EVENTS.index(event)].count("step") for event in rounds]
    assert steps[:3] == [0, 8, 16]
    assert steps[3] == 24 + 3 + 3  # eight each and two more, then site-0 has none left
    assert steps[4:] == [30 + 5 * 2 + 1, 45]


def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path) -> None:
    method = make_method("fedirm")
    federation = make_federation(rounds=4)
    whole = _train(federation, method, _engine(federation))
    checkpoints = Checkpoints(tmp_path)
    engine = _engine(federation, states=checkpoints)
    server = start_server(method, federation.task, engine)
    for round_ in run_rounds(method, federation.task, engine, server):
        engine.write_states()
        checkpoints.advance(round_.index + 1, round_.server)
        checkpoints.save()
        if round_.index == 1:
            break
    again = Checkpoints(tmp_path)
    saved, _ = again.restore()
    assert saved is not None
    engine = _engine(federation, states=again)
    for round_ in run_rounds(method, federation.task, engine, saved.server, first_round=2):
        server = round_.server
    assert same_bits(server, whole)


def test_another_method_finds_the_slots_cleared() -> None:
    federation = make_federation()
    engine = _engine(federation)
    _train(federation, make_method("fedprox"), engine)
    method = make_method("fedavg-pl")  # its clients' states have the same shape
    second = _train(federation, method, engine)
    assert same_bits(second, _train(federation, method, _engine(federation)))


@dataclass(frozen=True, kw_only=True)
class ReadsRound(FedAvg):
    """Reads the round inside a step; a replay would repeat its old value."""

    def loss(self, local: Local, batch: Batch) -> Tensor:
        return super().loss(local, batch) * (1 + local.round_index)


@dataclass(frozen=True, kw_only=True)
class Growing(FedAvg):
    """Its state gets longer with every step."""

    def after_step(self, local: Local, weights: Weights) -> State:
        seen = local.state.get("seen", torch.zeros(0))
        return {**local.state, "seen": torch.cat([seen, torch.ones(1)])}


def test_a_step_that_cannot_be_captured_is_reported_and_runs_eagerly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    federation, method = make_federation(), ReadsRound(training=make_method("fedavg").training)
    method = replace(method, training=replace(method.training, optimizer="sgd"))
    engine = _engine(federation)
    found = _train(federation, method, engine)
    assert engine.capture_failure == "a hook inside a step reads local.round_index"
    assert "without CUDA graphs" in caplog.text
    assert same_bits(found, federation.train(method))


def test_a_state_that_changes_its_shape_within_a_round_is_an_error() -> None:
    federation, method = make_federation(), Growing(training=make_method("fedavg").training)
    with pytest.raises(CaptureError, match="changes its shape"):
        _train(federation, method, _engine(federation))


def test_inside_a_step_only_tensors_can_be_read() -> None:
    local = StepLocal.of(
        Local(
            round_index=3,
            received={},
            state={"a": tensor(1)},
            data=next(iter(make_federation().clients.values())),
            layout=make_federation().task.layout,
            model=make_federation().task.build_network(),
            forward=None,  # type: ignore[arg-type]
            predict=None,  # type: ignore[arg-type]
            generator=torch.Generator(),
        )
    )
    assert local.state["a"].item() == 1
    assert local.stage == "train"
    for name in ("round_index", "data", "generator"):
        with pytest.raises(CaptureError, match=name):
            getattr(local, name)


def test_batch_norm_counts_its_batches_only_where_the_count_is_used() -> None:
    usual, averaging = nn.BatchNorm1d(1), nn.BatchNorm1d(1, momentum=None)
    disable_batch_counts(nn.Sequential(usual, averaging))
    for number in (1.0, 2.0):
        usual(tensor([[0.0], [2.0 * number]]))
        averaging(tensor([[0.0], [2.0 * number]]))
    assert usual.num_batches_tracked is None
    assert float(usual.running_mean) == pytest.approx(0.9 * 0.1 * 1.0 + 0.1 * 2.0)
    assert float(averaging.running_mean) == pytest.approx(1.5)


def test_a_diverging_loss_names_its_client() -> None:
    federation, method = make_federation(), make_method("fedavg")
    method = replace(method, training=replace(method.training, lr=1e30, optimizer="sgd"))
    with pytest.raises(UserError, match="training loss of client 'site-0' became") as caught:
        _train(federation, method, _engine(federation))
    assert any("site-0" in note for note in caught.value.__notes__)
