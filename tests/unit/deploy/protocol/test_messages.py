"""Messages: packing loses nothing, and unpacking refuses everything but a valid message."""

from __future__ import annotations

import random

import pytest
import torch

from fedquilt.core.payload import Gather, Mean, Sum
from fedquilt.core.tree import same_bits
from fedquilt.deploy.protocol.messages import (
    MAGIC,
    BadMessage,
    Message,
    pack,
    unpack,
    update_message,
    update_of,
)

TREE = {
    "weights": {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor([True, False])},
    "step": torch.tensor(3, dtype=torch.int64),
    "nothing": {},
    "deep": {"empty": {}, "half": torch.ones(2, dtype=torch.bfloat16)},
}


def test_a_tree_is_restored_with_every_bit_and_every_empty_branch() -> None:
    back = unpack(pack(Message({"round": 3, "kind": "train"}, TREE)))
    assert back.facts == {"round": 3, "kind": "train"}
    assert same_bits(back.tree, TREE)
    assert back.tree["nothing"] == {}
    assert back.tree["deep"]["empty"] == {}


def test_tensors_that_share_memory_and_views_are_sent_whole() -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    tree = {"one": whole, "same": whole, "column": whole[:, 1]}
    assert same_bits(unpack(pack(Message({}, tree))).tree, tree)


def test_an_update_is_restored_with_its_kinds_weights_and_flags() -> None:
    update = {
        "count": Sum(torch.tensor([2.0])),
        "body": Mean({"w": torch.ones(2)}, 5.0),
        "rows": Mean({"w": torch.ones(2, 3)}, torch.tensor([1.0, 0.0])),
        "codes": Gather({"c": torch.zeros(4, 2)}, any_length=True),
    }
    back = update_of(unpack(pack(update_message({"round": 0}, update))))
    assert {name: type(part) for name, part in back.items()} == {
        "count": Sum,
        "body": Mean,
        "rows": Mean,
        "codes": Gather,
    }
    assert back["codes"].any_length
    assert float(back["body"].weight) == 5.0
    assert back["rows"].weight.tolist() == [1.0, 0.0]
    assert all(same_bits(back[name].value, update[name].value) for name in update)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        MAGIC,
        MAGIC + bytes(8),
        MAGIC + (2**60).to_bytes(8, "big") + b"{}",
        MAGIC + (2).to_bytes(8, "big") + b"{}",
        MAGIC + (4).to_bytes(8, "big") + b"null",
        b"\x80\x04\x95" + bytes(40),  # how a pickle begins
    ],
)
def test_invalid_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(BadMessage):
        unpack(content)


def test_mutated_messages_are_refused_or_read_but_never_crash() -> None:
    whole = pack(Message({"round": 1}, TREE))
    random_ = random.Random(0)
    refused = 0
    for _ in range(2000):
        content = bytearray(whole)
        for _ in range(random_.randint(1, 4)):
            content[random_.randrange(len(content))] = random_.randrange(256)
        cut = random_.choice([len(content), random_.randrange(len(content))])
        try:
            unpack(bytes(content[:cut]))
        except BadMessage:
            refused += 1
    assert refused > 1000  # the others differ in numbers only
