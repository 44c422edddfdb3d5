"""What a slot takes in of a round's broadcast: what all get once, each client's own every time."""

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


def test_what_all_get_is_taken_in_once_a_round() -> None:
    slot, broadcast = _slot(), _broadcast(tensor([1.0, 2.0]), a=5.0, b=6.0)
    first = slot.receive(broadcast, "a")
    assert first.tree["weights"]["w"].tolist() == [1.0, 2.0]
    assert first.tree["own"].tolist() == [5.0]
    broadcast.shared["weights"]["w"].fill_(9.0)  # nobody looks at it again
    second = slot.receive(broadcast, "b")
    assert second.tree["weights"]["w"].tolist() == [1.0, 2.0]
    assert second.tree["own"].tolist() == [6.0]
    assert second.signature == first.signature


def test_the_next_round_is_taken_into_the_same_places() -> None:
    slot = _slot()
    old = slot.receive(_broadcast(tensor([1.0, 2.0])), "a").tree["weights"]["w"]
    new = slot.receive(_broadcast(tensor([3.0, 4.0])), "a").tree["weights"]["w"]
    assert new.tolist() == [3.0, 4.0]
    assert new.data_ptr() == old.data_ptr()  # where a recorded step reads it


def test_other_shapes_have_another_signature_and_places() -> None:
    slot = _slot()
    short = slot.receive(_broadcast(tensor([1.0])), "a")
    long = slot.receive(_broadcast(tensor([1.0, 2.0])), "a")
    assert short.signature != long.signature
    assert short.tree["weights"]["w"].data_ptr() != long.tree["weights"]["w"].data_ptr()


def test_a_slot_that_forgets_takes_in_the_same_broadcast_again() -> None:
    slot, broadcast = _slot(), _broadcast(tensor([1.0]))
    slot.receive(broadcast, "a")
    broadcast.shared["weights"]["w"].fill_(9.0)
    slot.forget()
    assert slot.receive(broadcast, "a").tree["weights"]["w"].tolist() == [9.0]
