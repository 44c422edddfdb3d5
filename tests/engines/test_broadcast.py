"""All slots read one copy of the shared parts of a broadcast, and each client's own parts."""

from __future__ import annotations

import torch
from support.tiny_federation import make_federation
from torch import Tensor, tensor

from fedquilt.core.payload import PerClient
from fedquilt.engines.cuda_graph.device_memory import Buffers
from fedquilt.engines.cuda_graph.slot import Broadcast, Slot

CPU = torch.device("cpu")


def _slot() -> Slot:
    task = make_federation().task
    return Slot(task, task.build_network(), CPU, channels_last=False)


def _buffers() -> Buffers:
    return Buffers(channels_last=False)


def _broadcast(shared: Tensor, buffers: Buffers, **own: float) -> Broadcast:
    each = {client: tensor([value]) for client, value in own.items()}
    payload = {"weights": {"w": shared}, "own": PerClient(each, newcomer=tensor([0.0]))}
    return Broadcast(payload, buffers, torch.Tensor.clone)


def test_slots_share_one_copy_and_each_client_has_its_own_parts() -> None:
    broadcast = _broadcast(tensor([1.0, 2.0]), _buffers(), a=5.0, b=6.0)
    first, second = _slot().receive(broadcast, "a"), _slot().receive(broadcast, "b")
    assert first.tree["weights"]["w"].tolist() == [1.0, 2.0]
    assert second.tree["weights"]["w"].data_ptr() == first.tree["weights"]["w"].data_ptr()
    assert [each.tree["own"].tolist() for each in (first, second)] == [[5.0], [6.0]]
    assert second.signature == first.signature


def test_the_next_round_is_loaded_into_the_same_buffers() -> None:
    slot, buffers = _slot(), _buffers()
    old = slot.receive(_broadcast(tensor([1.0, 2.0]), buffers), "a").tree["weights"]["w"]
    new = slot.receive(_broadcast(tensor([3.0, 4.0]), buffers), "a").tree["weights"]["w"]
    assert new.tolist() == [3.0, 4.0]
    assert new.data_ptr() == old.data_ptr()  # where a captured step reads it


def test_other_shapes_have_another_signature_and_buffers() -> None:
    slot, buffers = _slot(), _buffers()
    short = slot.receive(_broadcast(tensor([1.0]), buffers), "a")
    long = slot.receive(_broadcast(tensor([1.0, 2.0]), buffers), "a")
    assert short.signature != long.signature
    assert short.tree["weights"]["w"].data_ptr() != long.tree["weights"]["w"].data_ptr()
