"""A slot loads the shared parts of a broadcast once a round, and each client's own parts."""

from __future__ import annotations

import torch
from support.tiny_federation import make_federation
from torch import Tensor, tensor

from fedquilt.core.payload import PerClient
from fedquilt.engines.cuda_graph.slot import Broadcast, Slot

CPU = torch.device("cpu")


def _slot() -> Slot:
    task = make_federation().task
    return Slot(task, task.build_network(), CPU, channels_last=False)


def _broadcast(shared: Tensor, **own: float) -> Broadcast:
    each = {client: tensor([value]) for client, value in own.items()}
    payload = {"weights": {"w": shared}, "own": PerClient(each, newcomer=tensor([0.0]))}
    return Broadcast(payload, torch.Tensor.clone)


def test_shared_parts_are_loaded_once_per_round() -> None:
    slot, broadcast = _slot(), _broadcast(tensor([1.0, 2.0]), a=5.0, b=6.0)
    first = slot.receive(broadcast, "a")
    assert first.tree["weights"]["w"].tolist() == [1.0, 2.0]
    assert first.tree["own"].tolist() == [5.0]
    broadcast.shared["weights"]["w"].fill_(9.0)  # not read again
    second = slot.receive(broadcast, "b")
    assert second.tree["weights"]["w"].tolist() == [1.0, 2.0]
    assert second.tree["own"].tolist() == [6.0]
    assert second.signature == first.signature


def test_the_next_round_is_loaded_into_the_same_buffers() -> None:
    slot = _slot()
    old = slot.receive(_broadcast(tensor([1.0, 2.0])), "a").tree["weights"]["w"]
    new = slot.receive(_broadcast(tensor([3.0, 4.0])), "a").tree["weights"]["w"]
    assert new.tolist() == [3.0, 4.0]
    assert new.data_ptr() == old.data_ptr()  # where a captured step reads it


def test_other_shapes_have_another_signature_and_buffers() -> None:
    slot = _slot()
    short = slot.receive(_broadcast(tensor([1.0])), "a")
    long = slot.receive(_broadcast(tensor([1.0, 2.0])), "a")
    assert short.signature != long.signature
    assert short.tree["weights"]["w"].data_ptr() != long.tree["weights"]["w"].data_ptr()


def test_a_cleared_slot_loads_the_same_broadcast_again() -> None:
    slot, broadcast = _slot(), _broadcast(tensor([1.0]))
    slot.receive(broadcast, "a")
    broadcast.shared["weights"]["w"].fill_(9.0)
    slot.clear()
    assert slot.receive(broadcast, "a").tree["weights"]["w"].tolist() == [9.0]
