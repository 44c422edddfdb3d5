"""FedLSM at a client: pools, pseudo-labels and mixtures, on the numbers of its card."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from support.half_known_client import HALF_KNOWN, half_known_client
from support.pixel_logits import make_batch
from torch import tensor

from fedquilt.data.batches import Batch
from fedquilt.losses.pseudo_labels import NO_TAG
from fedquilt.methods.fedlsm import FedLSM
from fedquilt.models.network import Layout

LN2, LN3 = math.log(2), math.log(3)


def test_without_missing_labels_there_is_no_teacher_and_one_view() -> None:
    local = half_known_client(FedLSM(), torch.ones_like(HALF_KNOWN), tensor([[1, 0], [0, 1]]))
    assert "teacher" not in local.state
    (pool,) = FedLSM().pools(local)
    assert (pool.rows, pool.views) == (None, ("strong",))
    # Labels (1, 0), (0, 1) at logits of 0, positives of class 0 weigh 3: (3 + 1 + 1 + 1) / 4 ln 2.
    loss, local.state = FedLSM().step_loss(local, make_batch(local, torch.zeros(2, 2)))
    assert loss.item() == pytest.approx(1.5 * LN2)
    assert local.state["drawn"].tolist() == [1.0, 1.0]
    assert FedLSM().after_step(local, {}) is local.state


def test_single_labels_are_missing_where_the_positive_is() -> None:
    method = FedLSM(labels="single")
    assert "teacher" not in half_known_client(method, HALF_KNOWN, tensor([[1, 9], [1, 9]])).state
    assert "teacher" in half_known_client(method).state


def test_loss_and_counts_by_hand() -> None:
    local = half_known_client(FedLSM())
    # The teacher predicts 0.9, so 1, and 0.5, so nothing; the annotated class is not filled in.
    weak = tensor([[-50.0, 2 * LN3], [-50.0, 0.0]])
    loss, local.state = FedLSM().step_loss(local, make_batch(local, torch.zeros(2, 2), weak))
    # Four entries at a logit of 0: a positive of weight 3, a negative, a positive pseudo-label.
    assert loss.item() == pytest.approx((3 + 1 + 1 + 0) * LN2 / 4)
    assert local.state["drawn"].tolist() == [1.0, 1.0]
    assert FedLSM().pseudo_labels(local.state).tolist() == [[NO_TAG, 1], [NO_TAG, NO_TAG]]
    _, local.state = FedLSM().step_loss(local, make_batch(local, torch.zeros(2, 2), weak))
    assert local.state["drawn"].tolist() == [2.0, 2.0]  # draws, not distinct images


def test_an_unconfident_teacher_fills_in_nothing() -> None:
    """All probabilities lie between the thresholds: only annotated labels train and count."""
    losses = []
    for missing in (0.0, 5.0):  # the student's logits where labels are missing
        local = half_known_client(FedLSM())
        strong = tensor([[0.0, missing], [0.0, missing]])
        weak = torch.logit(tensor([[0.5, 0.84], [0.5, 0.02]]))
        batch = make_batch(local, strong, weak)
        beside = tuple(
            replace(batch, views=(torch.logit(tensor([[0.5, at]] * 2))[:, None, None, :],))
            for at in (0.69, 0.84)
        )
        batch = replace(batch, beside=beside, drawn=tensor(1.0))
        loss, local.state = FedLSM().step_loss(local, batch)
        losses.append(loss.item())
        assert local.state["drawn"].tolist() == [1.0, 0.0]
        assert (local.state["tags"] == NO_TAG).all()
    # 4 ln 2 / 4 on annotated labels; in the two mixtures 2 ln 2 / 4 on annotated labels.
    assert losses == pytest.approx([LN2 + 0.1 * LN2 / 2] * 2)


def _mixture_loss(
    method: FedLSM,
    uncertain: float,
    certain: float,
    share: float,
    rows: tuple[int, int] = (0, 1),
) -> float:
    """Of one pair of images with these logits in the class that is not annotated.

    In the other class, row 0 is annotated as 1 and row 1 as 0.
    """
    local = half_known_client(method)
    whole = make_batch(local, torch.zeros(2, 2), torch.zeros(2, 2))

    def image(row: int, logit: float) -> Batch:
        # With one class per image, the log-odds of the two are opposite.
        pixels = tensor([[[[-logit if method.labels == "single" else 0.0, logit]]]])
        return Batch(
            (pixels,), whole.labels[row, None], whole.known[row, None], whole.rows[row, None]
        )

    alone = method.loss(local, whole).item()
    beside = (image(rows[0], uncertain), image(rows[1], certain))
    with_mixture = method.loss(local, replace(whole, beside=beside, drawn=tensor(share))).item()
    return with_mixture - alone


def test_mixtures_by_hand() -> None:
    # Class 0: target 1/4 at a logit of 0: ln 2, and no class weight. Class 1: the uncertain image
    # at 0.75 >= 0.7, the certain one at 0.9 >= 0.85, so 1, at a logit of 1/4 ln 3 + 3/4 2 ln 3.
    on_class_1 = math.log1p(3**-1.75)
    found = _mixture_loss(FedLSM(), LN3, 2 * LN3, 0.25)
    assert found == pytest.approx(0.1 * (LN2 + on_class_1) / 2, rel=1e-5)
    # Swapped, 0.75 is too low for a certain image, and the pair is not valid.
    turned = _mixture_loss(FedLSM(), 2 * LN3, LN3, 0.25)
    assert turned == pytest.approx(0.1 * LN2 / 2, rel=1e-5)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_mixture_of_the_first_image_alone(share: float) -> None:
    """At a share of 1 the annotated label is the first image's 1, at 0 the second one's 0."""
    method = FedLSM(mixing_strength=1.0)
    # Class 0 at a logit of 0 costs ln 2 for any target; both are confident that 1 is absent.
    found = _mixture_loss(method, -8.0, -5.0, share)
    logit = -8.0 * share - 5.0 * (1 - share)
    assert found == pytest.approx((LN2 + math.log1p(math.exp(logit))) / 2, rel=1e-5)


def test_mixtures_of_images_of_one_class_by_hand() -> None:
    method = FedLSM(**(FedLSM.variants["single-label"] | {"mixing_strength": 1.0}))
    # The uncertain image is annotated as class 0; the certain one, at a share of 0.9999, is
    # filled in as class 1. Targets 1/4 and 3/4 at log-odds of 1/4 * 1 + 3/4 * 9 = 7 for class 1.
    found = _mixture_loss(method, 1.0, 9.0, 0.25)
    assert found == pytest.approx(math.log1p(math.exp(7)) - 0.75 * 7, rel=1e-5)
    assert _mixture_loss(method, 1.0, 2.9, 0.25) == 0.0  # 0.948: one has no class, so neither has
    # The other way round a share of 0.731 is enough: targets 3/4 and 1/4 at log-odds of 1/4.
    found = _mixture_loss(method, 1.0, 0.0, 0.25, rows=(1, 0))
    assert found == pytest.approx(math.log1p(math.exp(0.25)) - 0.25 * 0.25, rel=1e-5)
    assert _mixture_loss(method, 0.8, 0.0, 0.25, rows=(1, 0)) == 0.0  # 0.690


def test_released_loss_by_hand() -> None:
    method = FedLSM(**FedLSM.variants["released"])
    local = half_known_client(method)
    strong = tensor([[0.0, 0.0], [0.0, LN3]])
    weak = tensor([[0.0, 2 * LN3], [0.0, 0.0]])
    loss, local.state = method.step_loss(local, make_batch(local, strong, weak))
    # The unconfident label trains as 0.5: ln 4 - 0.5 ln 3. Weights 3, 3, 1 and 0, in the mean 7/4.
    expected = (3 * LN2 + math.log(4) - 0.5 * LN3) / 4 * 7 / 4
    assert loss.item() == pytest.approx(expected, rel=1e-6)


def test_single_label_loss_by_hand() -> None:
    method = FedLSM(labels="single", thresholds=(0.01, 0.95))
    local = half_known_client(method, labels=tensor([[1, 9], [0, 9]]), weight=torch.ones(2))
    strong = tensor([[0.0, 0.0], [-LN3, LN3]])
    sure, unsure = tensor([[-9.0, 9.0], [-9.0, 9.0]]), tensor([[-9.0, 9.0], [-1.0, 1.0]])
    # The first image is annotated as class 0: ln 2. The second becomes class 1: -ln 3/4.
    loss, local.state = method.step_loss(local, make_batch(local, strong, sure))
    assert loss.item() == pytest.approx((LN2 + math.log(4 / 3)) / 2, rel=1e-6)
    assert local.state["drawn"].tolist() == [1.0, 1.0]
    assert local.state["tags"].tolist() == [[NO_TAG, NO_TAG], [NO_TAG, 1]]
    loss, local.state = method.step_loss(local, make_batch(local, strong, unsure))
    assert loss.item() == pytest.approx(LN2 / 2, rel=1e-6)
    assert local.state["drawn"].tolist() == [2.0, 1.0]


def test_numbers_of_the_card() -> None:
    method = FedLSM()
    assert (method.thresholds, method.uncertain_thresholds) == ((0.01, 0.85), (0.005, 0.7))
    assert (method.uncertain_images, method.certain_images, method.mixed_images) == (500, 2000, 4)
    assert (method.mixing_strength, method.mixing_concentration) == (0.1, 0.2)
    assert (method.teacher_decay, method.training.batch_size) == (0.999, 64)
    single = FedLSM(**FedLSM.variants["single-label"])  # of its skin lesions
    assert (single.labels, single.thresholds[1]) == ("single", 0.95)
    assert (single.uncertain_images, single.certain_images) == (50, 200)
    released = FedLSM(**FedLSM.variants["released"])
    assert (released.entropy, released.weighed) == ("one_sided", "mean")


def test_a_round_begins_without_last_rounds_labels_and_counts() -> None:
    method = FedLSM()
    local = half_known_client(method)
    weak = tensor([[0.0, 9.0], [0.0, 9.0]])
    _, local.state = method.step_loss(local, make_batch(local, torch.zeros(2, 2), weak))
    assert local.state["tags"][:, 1].tolist() == [1, 1]
    assert local.state["drawn"].tolist() == [1.0, 2.0]
    local.state = method.begin(local)
    assert (local.state["tags"] == NO_TAG).all()
    assert not local.state["drawn"].any()


def test_the_teachers_batch_norm_statistics_are_the_students() -> None:
    method = FedLSM(teacher_decay=0.75)
    local = half_known_client(method)
    local.layout = Layout(body=("shift",), head=(), buffers=("mean",))
    local.model.register_buffer("mean", tensor([8.0]))
    local.state["teacher"] = {"shift": tensor([0.0]), "mean": tensor([0.0])}
    with torch.no_grad():
        local.model.shift.fill_(4.0)
    teacher = method.after_step(local, {})["teacher"]
    # A quarter of the way to the student's weight; of old statistics nothing is left.
    assert (teacher["shift"].item(), teacher["mean"].item()) == (1.0, 8.0)


def test_teacher_starts_from_the_received_model_and_lags_behind() -> None:
    method = FedLSM()
    local = half_known_client(method)
    local.received["weights"]["shift"] += 1.0
    local.state = method.begin(local)  # whatever there was before
    with torch.no_grad():
        local.model.shift.fill_(5.0)
    for _ in range(200):
        local.state = method.after_step(local, {})
    # 5 + 0.999^200 (1 - 5) with a power of 0.8186488
    assert local.state["teacher"]["shift"].item() == pytest.approx(1.7254, abs=1e-4)
    _, kept = method.finish(local, {"shift": torch.zeros(1)}, 200)
    assert set(kept) == {"tags", "mixed"}
