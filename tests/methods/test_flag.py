"""FLAG: a client's weight is the variety of its positives.

The paper's partition, CMDA, is ``k-modes``; its oracles are in
tests/unit/data/partitions/test_partitions.py.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
import torch
from support.pixel_logits import make_local
from support.tiny_federation import Federation, make_federation, make_method
from torch import Tensor, tensor

from fedquilt.core.errors import UserError
from fedquilt.core.totals import Accumulator
from fedquilt.core.tree import same_bits
from fedquilt.methods.flag import FLAG, label_variety

A, B = [10, 0, 5], [30, 4, 5]  # the card's clients: positives per class


def labelled(counts: list[int], extra: int = 0) -> Tensor:
    """An image for every positive, and ``extra`` ones without any."""
    images = [torch.eye(len(counts))[column] for column, n in enumerate(counts) for _ in range(n)]
    return torch.stack([*images, *[torch.zeros(len(counts))] * extra])


def mean_of(method: FLAG, clients: list[tuple[Tensor, Tensor, float]]) -> float:
    """The mean change when each client, (labels, known, change), moves the only weight so far."""
    locals_ = [make_local(method, known, labels) for labels, known, _ in clients]
    updates = [
        method.finish(local, {"shift": tensor([change])}, 1)[0]
        for local, (_, _, change) in zip(locals_, clients)
    ]
    accumulator = Accumulator(updates[0], len(updates))
    for number, update in enumerate(updates):
        accumulator.add(str(number), update)
    return float(accumulator.totals().mean("body")["shift"])


def known_to(labels: Tensor) -> Tensor:
    return torch.ones_like(labels, dtype=torch.bool)


def share_of_b(alpha: float, first: list[int], second: list[int]) -> float:
    one, two = labelled(first), labelled(second)
    return mean_of(FLAG(alpha=alpha), [(one, known_to(one), 0.0), (two, known_to(two), 1.0)])


@pytest.mark.parametrize(
    ("alpha", "varieties", "share"),
    [
        (0.0, (2.0, 3.0), 0.6),
        (0.5, (5.3983456, 9.7132936), 0.64277),  # sqrt 10 + sqrt 5; sqrt 30 + 2 + sqrt 5
        (1.0, (15.0, 39.0), 0.72222),
    ],
)
def test_weights_of_the_card(alpha: float, varieties: tuple[float, float], share: float) -> None:
    found = [label_variety(tensor(counts), alpha) for counts in (A, B)]
    assert found == pytest.approx(varieties)
    assert share_of_b(alpha, A, B) == pytest.approx(share, abs=5e-6)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_names_of_classes_and_repeated_samples_do_not_matter(alpha: float) -> None:
    share = share_of_b(alpha, A, B)
    assert share_of_b(alpha, [0, 5, 10], [4, 5, 30]) == pytest.approx(share)
    twice = [[2 * n for n in counts] for counts in (A, B)]
    assert share_of_b(alpha, *twice) == pytest.approx(share)
    assert share_of_b(alpha, A, A) == 0.5


def test_only_annotated_positives_count() -> None:
    one, two = labelled(A), labelled(B)
    blind = known_to(two)
    blind[:, :2] = False  # 5 positives of class 2 are left of B
    found = mean_of(FLAG(alpha=1.0), [(one, known_to(one), 0.0), (two, blind, 1.0)])
    assert found == pytest.approx(5 / 20)


def test_a_client_without_positives_changes_no_bit_and_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    method = make_method("flag")
    federation = make_federation(annotated=((0, 1), (1, 2), (2,)))
    idle = federation.clients["site-2"]
    empty = replace(idle, labels=torch.zeros_like(idle.labels))
    other = replace(empty, images=255 - idle.images)
    with caplog.at_level(logging.WARNING):
        runs = [
            Federation(federation.task, {**federation.clients, "site-2": data}).train(method)
            for data in (empty, other)
        ]
    assert same_bits(*runs)
    assert [record.getMessage() for record in caplog.records] == [
        "client 'site-2' has no annotated positive, so flag gives it no weight"
    ] * 2


def test_where_nobody_has_positives_images_count() -> None:
    few, many = torch.zeros(1, 3), torch.zeros(3, 3)
    clients = [(few, known_to(few), 0.0), (many, known_to(many), 1.0)]
    assert mean_of(FLAG(), clients) == 0.75
    assert mean_of(FLAG(weighting="uniform"), clients) == 0.5


def test_with_one_class_each_and_variety_alone_clients_are_equals_bit_for_bit() -> None:
    federation = make_federation()
    plain = make_method("fedavg-pl", weighting="uniform", positive_weight="none")
    found = federation.train(make_method("flag", alpha=0.0))
    assert same_bits(found, federation.train(plain))


def test_the_whole_model_has_one_weight() -> None:
    method = make_method("flag", alpha=1.0)
    data = make_federation(annotated=((0, 2),)).clients["site-0"]
    local = make_local(method, data.known, data.labels)
    federation = make_federation(backbone="small-resnet")
    weights = {name: torch.zeros(3) for name in federation.task.layout.names}
    local.layout, local.received = federation.task.layout, {"weights": weights}
    update, _ = method.finish(local, weights, 1)
    positives = float((data.labels * data.known).sum())
    assert update["body"].weight == update["buffers"].weight == positives > 0
    assert update["head"].weight.tolist() == [positives] * 3


def test_the_power_is_that_of_the_code_the_card_names() -> None:
    assert FLAG().alpha == 0.3


def test_an_impossible_power_is_refused() -> None:
    with pytest.raises(UserError, match=r"alpha must be in 0..1, found 2"):
        FLAG(alpha=2.0)
