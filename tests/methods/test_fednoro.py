"""FedNoRo: the ramp, the teacher and the guards, on numbers of its card."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from support.logit_client import batch_of, client_of, holding
from support.tiny_federation import make_federation, make_method
from torch import tensor

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Gather
from fedquilt.core.totals import Accumulator
from fedquilt.core.tree import same_bits
from fedquilt.losses.class_prior import adjust_logits
from fedquilt.methods.fednoro import FedNoRo
from fedquilt.training.whole_models import (
    distance_aware_weights,
    distances_to_nearest,
    inner_products,
)

# The fixture of the method cards, section 6: classes 0 and 2 are annotated.
LOGITS = tensor([[0.3, -1.0, 2.0], [-0.5, 0.7, 0.0]])
LABELS = tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
KNOWN = tensor([[True, False, True], [True, False, True]])
PORTED = FedNoRo(**FedNoRo.variants["ported"])


def _loss(method: FedNoRo, teacher: torch.Tensor, known: torch.Tensor = KNOWN, t: int = 499):
    local = client_of(method, holding(LABELS, known), LOGITS, teacher=teacher, round_index=t)
    local.state = method.begin(local)
    return method.loss(local, batch_of(LABELS, known))


@pytest.mark.parametrize(
    ("round_index", "share"), [(0, 0.0053904), (10, 0.0053904), (255, 0.2303774), (499, 0.8)]
)
def test_the_share_of_the_teacher(round_index: int, share: float) -> None:
    assert PORTED.teacher_share(round_index) == pytest.approx(share, abs=6e-8)


def test_the_schedule_of_the_paper() -> None:
    assert replace(PORTED, ramp_end=49).teacher_share(30) == pytest.approx(0.2441768, abs=6e-8)


def test_the_two_terms_by_hand() -> None:
    # Supervised, without weights: 0.5543552, 2.1269280, 0.4740770, 0.6931472; mean 0.9621269.
    # Held to 1/2: sigmoid(-1) and sigmoid(0.7), (0.2310586^2 + 0.1681878^2) / 2 = 0.0408376.
    found = _loss(PORTED, torch.zeros(2, 3)).item()
    assert found == pytest.approx(0.2 * 0.9621269 + 0.8 * 0.0408376, abs=1e-6)


def test_the_temperature_sharpens_the_teacher_only() -> None:
    # z = 0.5, teacher 1: (sigmoid(0.5) - sigmoid(1 / 0.8))^2 = 0.0239756; alone in the loss.
    method = replace(PORTED, distillation=1.0)
    labels, known = tensor([[0.0]]), tensor([[False]])
    local = client_of(
        method, holding(labels, known), tensor([[0.5]]), teacher=tensor([[1.0]]), round_index=499
    )
    local.state = method.begin(local)
    loss = method.loss(local, batch_of(labels, known))
    assert loss.item() == pytest.approx(0.0239756, abs=6e-8)


def test_a_student_equal_to_its_teacher_is_not_pulled() -> None:
    even = replace(PORTED, teacher_temperature=1.0, distillation=1.0)
    assert _loss(even, LOGITS).item() == 0.0


def test_without_a_missing_label_supervision_is_the_whole_loss() -> None:
    everything = torch.ones_like(KNOWN)
    alone = _loss(replace(PORTED, distillation=0.0), LOGITS, everything)
    assert _loss(PORTED, torch.zeros(2, 3), everything).item() == alone.item()


def test_the_prior_of_annotated_labels_shifts_annotated_logits_only() -> None:
    # Prevalence 1/2 in the annotated classes, so no shift there; class 1 would be at 1 / 4.
    method = FedNoRo()
    prior = method.init_client(holding(LABELS, KNOWN))["prior"]
    assert prior.tolist() == [0.5, 0.25, 0.5]
    teacher = torch.zeros(2, 3)
    assert _loss(method, teacher).item() == pytest.approx(_loss(PORTED, teacher).item())
    local = client_of(
        method,
        holding(LABELS, KNOWN),
        LOGITS,
        teacher=teacher,
        round_index=499,
        prior=tensor([0.2, 0.9, 0.5]),
    )
    shifted = LOGITS + tensor([torch.logit(tensor(0.2)).item(), 0.0, 0.0])
    by_hand = client_of(PORTED, holding(LABELS, KNOWN), shifted, teacher=teacher, round_index=499)
    batch = batch_of(LABELS, KNOWN)
    local.state, by_hand.state = method.begin(local), PORTED.begin(by_hand)
    assert method.loss(local, batch).item() == pytest.approx(PORTED.loss(by_hand, batch).item())


def test_the_shift_is_bayes_rule() -> None:
    z, pi = tensor([-2.0, 0.4], dtype=torch.float64), tensor([0.1, 0.7], dtype=torch.float64)
    p = torch.sigmoid(z)
    expected = p * pi / (p * pi + (1 - p) * (1 - pi))
    assert torch.allclose(torch.sigmoid(adjust_logits(z, pi)), expected, rtol=0, atol=1e-12)


def test_without_teacher_and_prior_it_is_fedavg_pl_bit_for_bit() -> None:
    federation = make_federation()
    off = make_method("fednoro", distillation=0.0, logit_adjustment=False)
    plain = federation.train(make_method("fedavg-pl", positive_weight="none"))
    assert same_bits(federation.train(off), plain)
    on = make_method("fednoro", ramp_start=0, ramp_end=0, logit_adjustment=False)
    assert not same_bits(federation.train(on), plain)


@pytest.mark.parametrize(
    "wrong", [{"distillation": 1.5}, {"teacher_temperature": 0.0}, {"ramp_start": 9, "ramp_end": 3}]
)
def test_settings_without_a_meaning_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UserError, match="method"):
        FedNoRo(**wrong)


def test_distance_aware_weights_of_the_card() -> None:
    # D / 2 = 0, 0.5, 1: 100, 100 e^-0.5 = 60.65307, 200 e^-1 = 73.57589, of 234.22896.
    found = distance_aware_weights(tensor([100.0, 100.0, 200.0]), tensor([0.0, 1.0, 2.0]))
    assert found.tolist() == pytest.approx([0.4269327, 0.2589478, 0.3141195], abs=6e-8)


def test_without_distances_clients_count_by_images() -> None:
    """No noisy client: the largest distance is 0, and 0 / 0 must not be a weight."""
    found = distance_aware_weights(tensor([100.0, 100.0, 200.0]), torch.zeros(3))
    assert found.tolist() == [0.25, 0.25, 0.5]


def test_distances_are_to_the_nearest_clean_client_tensor_by_tensor() -> None:
    # Client 2 is |(3, 4)| + |2| = 7 from client 0 and |(0, 4)| + |1| = 5 from client 1.
    rows = ([0.0, 0.0], [3.0, 0.0], [3.0, 4.0]), (0.0, 1.0, 2.0)
    products = inner_products([{"a": tensor(a), "b": tensor([b])} for a, b in zip(*rows)])
    one, both = tensor([True, False, False]), tensor([True, True, False])
    assert distances_to_nearest(products, one).tolist() == pytest.approx([0.0, 4.0, 7.0])
    assert distances_to_nearest(products, both).tolist() == pytest.approx([0.0, 0.0, 5.0])
    nobody = torch.zeros(3, dtype=torch.bool)
    assert distances_to_nearest(products, nobody).tolist() == [0.0, 0.0, 0.0]


def test_the_server_weighs_models_by_images_and_distance() -> None:
    # Changes 0, 1, 2 of one weight; the first client is clean: distances 0, 1, 2 as in the card,
    # so the mean is 0.2589478 + 2 * 0.3141195. Clients arrive in another order than their names.
    method = FedNoRo(distance_aware=True)
    accumulator = Accumulator(_judged(0.0, 0.0, 0.0), 3)
    for name, change, images, clean in (("c", 2.0, 200.0, 0.0), ("a", 0.0, 100.0, 1.0)):
        accumulator.add(name, _judged(change, images, clean))
    accumulator.add("b", _judged(1.0, 100.0, 0.0))
    new = method.update({"weights": {"w": tensor([10.0])}}, accumulator.totals())
    assert new["weights"]["w"].item() == pytest.approx(10 + 0.2589478 + 2 * 0.3141195, abs=1e-6)


def _judged(change: float, images: float, clean: float) -> dict[str, Gather]:
    return {
        "body": Gather({"w": tensor([change])}),
        "images": Gather(tensor(images), is_weight=True),
        "is_clean": Gather(tensor(clean)),
    }


@pytest.mark.parametrize("backbone", ["small-cnn", "small-resnet"])
def test_if_no_client_is_complete_distances_change_nothing(backbone: str) -> None:
    """By SGD: Adam makes a full step of a gradient's last bit."""

    def trained(annotated: tuple[tuple[int, ...], ...], **settings: object):  # type: ignore[no-untyped-def]
        method = make_method("fednoro", **settings)
        method = replace(method, training=replace(method.training, optimizer="sgd"))
        federation = make_federation(annotated=annotated, backbone=backbone, rounds=2)
        return federation.train(method)["weights"]

    noisy = ((0,), (1,), (2,))
    plain = trained(noisy)
    for name, leaf in trained(noisy, distance_aware=True).items():
        torch.testing.assert_close(leaf, plain[name], rtol=1e-4, atol=1e-5, msg=name)
    clean = ((0, 1, 2), (1,), (2,))
    assert not torch.allclose(
        trained(clean, distance_aware=True)["head.bias"], trained(clean)["head.bias"], atol=1e-5
    )


def test_distances_go_with_weights_by_images_only() -> None:
    with pytest.raises(UserError, match="leave head_rows and weighting as they are"):
        FedNoRo(distance_aware=True, weighting="uniform")
