"""FedVLS: calibration, distillation of vacant classes and suppression, by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from support.logit_client import batch_of, client_of, holding
from support.tiny_federation import make_federation, make_method
from torch import tensor

from fedquilt.core.errors import UserError
from fedquilt.core.tree import same_bits
from fedquilt.losses.cross_entropy import masked_bce
from fedquilt.losses.single_label import calibrated_cross_entropy, soft_maxima, vacant_divergence
from fedquilt.methods.fedvls import FedVLS

# Class 0 has positives, class 1 is annotated without any, class 2 is not annotated.
LABELS = tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
KNOWN = tensor([[True, True, False], [True, True, False]])
LOGITS = tensor([[0.3, -1.0, 2.0], [-0.5, 0.7, 0.0]])
BARE = FedVLS(distillation=0.0, suppression=0.0)


def _loss(method: FedVLS, logits: torch.Tensor = LOGITS, **client: torch.Tensor) -> torch.Tensor:
    local = client_of(method, holding(LABELS, KNOWN), logits, **client)
    return method.loss(local, batch_of(LABELS, KNOWN))


def test_vacant_are_classes_without_an_annotated_positive() -> None:
    state = FedVLS().init_client(holding(LABELS, KNOWN))
    assert state["vacant"].tolist() == [False, True, True]
    assert state["prior"].tolist() == [0.5, 0.25, 0.25]  # 1 of 2; 0 of 2 kept off 0 by 1 / (2 + 2)


def test_at_a_prior_of_one_half_and_without_extras_it_is_the_plain_loss() -> None:
    supervised = tensor([[True, False, False], [True, False, False]])
    assert _loss(BARE).item() == masked_bce(LOGITS, LABELS, supervised).item()


def test_the_prior_calibrates_while_training() -> None:
    # pi = 0.2: z - ln 4
    found = _loss(BARE, prior=tensor([0.2, 0.5, 0.5])).item()
    present = math.log1p(math.exp(-(0.3 - math.log(4))))
    absent = math.log1p(math.exp(-0.5 - math.log(4)))
    assert found == pytest.approx((present + absent) / 2)
    plain = _loss(replace(BARE, calibration=False), prior=tensor([0.2, 0.5, 0.5]))
    assert plain.item() == _loss(BARE).item()


def test_vacant_classes_are_held_to_the_received_model() -> None:
    # KL(1/2 || q) = -ln(4 q (1 - q)) / 2 for the four vacant entries, teacher at 0.
    q = torch.sigmoid(LOGITS[:, 1:])
    held = (-(4 * q * (1 - q)).log() / 2).mean().item()
    method = replace(BARE, distillation=0.1)
    extra = _loss(method, teacher=torch.zeros(2, 3)) - _loss(BARE)
    assert extra.item() == pytest.approx(0.1 * held, rel=1e-4)
    assert _loss(method, teacher=LOGITS).item() == _loss(BARE).item()


def test_a_single_vacant_class_is_held_too() -> None:
    """A softmax over one class would be blind to it."""
    labels, known = tensor([[1.0, 0.0]]), tensor([[True, False]])
    method = replace(BARE, distillation=1.0)
    losses = [
        method.loss(
            client_of(
                method, holding(labels, known), tensor([[0.0, z]]), teacher=torch.zeros(1, 2)
            ),
            batch_of(labels, known),
        ).item()
        for z in (0.0, 3.0)
    ]
    assert losses[1] > losses[0] + 0.5


def test_suppression_of_negatives() -> None:
    # Class 0, pi = 1/2, one negative with z = -0.5 among two images: ln(e^-0.5 / 0.5) - ln 2 = -0.5
    extra = _loss(replace(BARE, suppression=0.005)) - _loss(BARE)
    assert extra.item() == pytest.approx(0.005 * 0.5 * -0.5, rel=1e-3)


def test_with_everything_off_it_is_fedavg_pl_bit_for_bit() -> None:
    federation = make_federation()
    off = {"calibration": False, "distillation": 0.0, "suppression": 0.0}
    plain = federation.train(make_method("fedavg-pl", positive_weight="none"))
    assert same_bits(federation.train(make_method("fedvls", **off)), plain)
    for switch, on in (("calibration", True), ("distillation", 1.0), ("suppression", 0.1)):
        changed = make_method("fedvls", **{**off, switch: on})
        assert not same_bits(federation.train(changed), plain), switch


def test_without_a_vacant_class_nothing_is_distilled() -> None:
    federation = make_federation(annotated=((0, 1, 2), (0, 1, 2)))
    strong, none = (make_method("fedvls", distillation=strength) for strength in (9.0, 0.0))
    assert same_bits(federation.train(strong), federation.train(none))


# The card's fixture of the paper's form: images of classes 0 and 1, class 2 is vacant.
ONE_CLASS = tensor([[1.0, 0.0, -1.0], [0.0, 2.0, 0.5]], dtype=torch.float64)
IS_OF = tensor([[True, False, False], [False, True, False]])
SHARES = tensor([0.5, 0.5, 0.0], dtype=torch.float64)
PUBLISHED = FedVLS(**FedVLS.variants["published"])


def test_calibrated_cross_entropy_of_the_card() -> None:
    # Equal priors cancel and class 2 is at -1 - 20.7: (ln(1 + e^-1) + ln(1 + e^-2)) / 2.
    found = calibrated_cross_entropy(ONE_CLASS, IS_OF, SHARES)
    assert found.item() == pytest.approx(0.2200948, abs=6e-8)
    even = calibrated_cross_entropy(ONE_CLASS, IS_OF, torch.full_like(SHARES, 1 / 3))
    plain = torch.nn.functional.cross_entropy(ONE_CLASS, tensor([0, 1]))
    assert even.item() == pytest.approx(plain.item(), abs=1e-12)


def test_soft_maxima_of_the_card() -> None:
    # Class 0: 0 for its own image, 0 - ln 0.5 + ln(1/3) = ln(2/3) for the other: ln(5/3) - ln 2.
    # Class 2: logits -1 and 0.5, each plus 20.7232658 - 1.0986123.
    found = soft_maxima(ONE_CLASS, IS_OF, SHARES)
    assert found.tolist() == pytest.approx([-0.1823216, -0.1823216, 19.6329196], abs=6e-8)
    assert (SHARES * found).sum().item() == pytest.approx(-0.1823216, abs=6e-8)  # vacant: weight 0


def test_divergence_over_vacant_classes_by_hand() -> None:
    # Two vacant classes at 1/4, 3/4 against 1/2, 1/2: 0.25 ln 0.5 + 0.75 ln 1.5 = 0.1308121.
    teacher, student = tensor([[9.0, 0.0, math.log(3)]]), tensor([[-9.0, 5.0, 5.0]])
    vacant = tensor([False, True, True])
    assert vacant_divergence(teacher, student, vacant).item() == pytest.approx(0.1308121, abs=1e-6)
    assert vacant_divergence(teacher, teacher, vacant).item() == 0.0
    shifted = teacher + tensor([0.0, 4.0, 4.0])  # it is blind to that
    assert vacant_divergence(teacher, shifted, vacant).item() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("vacant", [[False, False, False], [False, True, False]])
def test_no_or_one_vacant_class_gives_exactly_nothing_to_distil(vacant: list[bool]) -> None:
    student = ONE_CLASS.clone().requires_grad_()
    loss = vacant_divergence(-ONE_CLASS, student, tensor(vacant))
    loss.backward()
    assert loss.item() == 0.0
    assert student.grad is not None
    assert student.grad.tolist() == [[0.0] * 3] * 2


def test_the_published_loss_of_the_card() -> None:
    """Its own prior, cross-entropy and 0.005 times suppression; one vacant class adds nothing."""
    labels, known = IS_OF.float(), torch.ones(2, 3, dtype=torch.bool)
    state = PUBLISHED.init_client(holding(labels, known))
    assert state["prior"].tolist() == [0.5, 0.5, 0.0]
    logits = ONE_CLASS.float()
    local = client_of(PUBLISHED, holding(labels, known), logits, teacher=-logits)
    found = PUBLISHED.loss(local, batch_of(labels, known)).item()
    assert found == pytest.approx(0.2200948 - 0.0009116, abs=2e-7)


def test_images_without_a_label_are_distilled_only() -> None:
    """Class 0 is identified, 1 and 2 are not; nobody in the batch is of class 0."""
    labels, known = torch.zeros(2, 3), tensor([[True, False, False]] * 2)
    local = client_of(
        *(PUBLISHED, holding(labels, known), torch.zeros(2, 3)),
        teacher=tensor([[0.0, 0.0, math.log(3)]] * 2),
        vacant=tensor([False, True, True]),
        prior=tensor([1.0, 0.0, 0.0]),
    )
    loss = PUBLISHED.loss(local, batch_of(labels, known))
    loss.backward()
    assert loss.item() == pytest.approx(0.1 * 0.1308121, abs=1e-6)
    assert bool(local.model.logits[0].grad.isfinite().all())


def test_the_published_form_refuses_images_of_several_classes() -> None:
    with pytest.raises(UserError, match=r"'site-0' holds .* positive for several classes"):
        make_federation(annotated=((0, 1, 2),)).train(make_method("fedvls", labels="single"))
