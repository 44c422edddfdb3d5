"""What leaves a client is read from the method."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from fedquilt.core.payload import Gather, Update
from fedquilt.methods.fedavg import FedAvg
from fedquilt.privacy.sent_parts import sent_parts, surveyed_parts
from fedquilt.training.method import State
from fedquilt.training.task import Task


@dataclass(frozen=True, kw_only=True)
class Gathering(FedAvg):
    """Sends every client's weights to the server."""

    def expected_update(self, received: State, task: Task) -> Update:
        return {"each": Gather(received["weights"])}


def test_parts_of_fedmlp():
    parts = {part.name: part for part in sent_parts("fedmlp")}
    assert list(parts) == ["body", "head", "prototypes", "difficulty", "training_loss"]
    assert parts["prototypes"].tensors == {"": (5, 2, 64)}  # classes, absent and present, features
    assert parts["prototypes"].weight_shape == (5, 2)
    # small-cnn: 16 * 9 + 16, 32 * 16 * 9 + 32, 64 * 32 * 9 + 64
    assert parts["body"].numbers == 160 + 4640 + 18496
    assert parts["head"].numbers == 5 * 64 + 5
    assert all(part.can_be_summed_securely for part in parts.values())


def test_sum_has_no_weight():
    control = {part.name: part for part in sent_parts("scaffold")}["control"]
    assert (control.kind, control.weight_shape) == ("Sum", None)
    assert control.to_dict()["numbers"] == 23296 + 325


def test_parts_of_a_survey():
    parts = {part.name: part for part in surveyed_parts("fedlsm")}
    assert {name: part.kind for name, part in parts.items()} == dict.fromkeys(
        ("annotators", "positives", "annotated"), "Sum"
    )
    assert all(part.can_be_summed_securely for part in parts.values())
    codes = {part.name: part for part in surveyed_parts("fedalc")}["codes"]
    assert (codes.per_image, codes.can_be_summed_securely) == (True, False)
    assert codes.tensors == {"codes": (1, 16), "positives": (1, 5)}


def test_gathered_part_cannot_be_summed_securely(monkeypatch: pytest.MonkeyPatch):
    table = {"gathering": f"{__name__}:Gathering"}
    monkeypatch.setattr("fedquilt.privacy.sent_parts.all_methods", lambda: table)
    each = sent_parts("gathering")[0]
    assert (each.name, each.kind, each.can_be_summed_securely) == ("each", "Gather", False)
