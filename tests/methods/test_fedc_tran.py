"""FedC-Tran: revealed, hidden and unannotated labels, on numbers worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from support.tiny_federation import Federation, make_federation, make_method
from support.told_client import told_batch, told_client
from torch import tensor

from fedquilt.core.errors import UserError
from fedquilt.core.tree import leaves, same_bits
from fedquilt.data.client_data import ClientData
from fedquilt.losses.cross_entropy import masked_bce
from fedquilt.methods.fedc_tran import FedCTran
from fedquilt.models.spec import ModelSpec
from fedquilt.training.local_training import LocalTraining

TABLES = ("head.labels", "head.negative", "head.positive")
LABELS = tensor([[1.0, 0.0, 7.0], [0.0, 1.0, 1.0]])  # the 7 is not annotated
KNOWN = tensor([[True, True, False], [True, True, True]])
DRAWN = tensor([[True, False, True], [False, True, False]])


def test_revealed_labels_and_the_loss_of_hidden_ones() -> None:
    # Hidden: image 0 class 1, image 1 classes 0 and 2. Logits 0, 1, 1 with labels 0, 0, 1 cost
    # ln 2, ln(1 + e) and ln(1 + 1/e): 0.6931472 + 1.3132617 + 0.3132617.
    local = told_client(FedCTran(), LABELS, KNOWN, tensor([[9.0, 0.0, 9.0], [1.0, 9.0, 1.0]]))
    loss = FedCTran().loss(local, told_batch(LABELS, KNOWN, DRAWN))
    assert loss.item() == pytest.approx(0.6931472 + 1.3132617 + 0.3132617, rel=1e-6)
    assert local.model.states == [[1, -1, -1], [-1, 1, -1]]
    loss.backward()
    silent = tensor([[True, False, True], [False, True, False]])  # revealed or not annotated
    assert not local.model.logits.grad[silent].any()
    assert bool(local.model.logits.grad[~silent].all())


def test_missing_labels_may_be_treated_as_negatives() -> None:
    method = FedCTran(unannotated="negative")
    local = told_client(method, LABELS, KNOWN, torch.zeros(2, 3))
    loss = method.loss(local, told_batch(LABELS, KNOWN, DRAWN))
    assert local.model.states == [[1, -1, 0], [-1, 1, -1]]
    assert loss.item() == pytest.approx(3 * math.log(2), rel=1e-6)


def test_with_nothing_revealed_the_loss_is_that_of_fedavg_pl_times_its_labels() -> None:
    logits = tensor([[0.3, -1.0, 2.0], [-0.5, 0.7, 0.0]])
    local = told_client(FedCTran(), LABELS, KNOWN, logits)
    nothing = torch.zeros_like(KNOWN)
    loss = FedCTran().loss(local, told_batch(LABELS, KNOWN, nothing))
    assert loss.item() == pytest.approx(5 * masked_bce(logits, LABELS, KNOWN).item(), rel=1e-6)
    assert not FedCTran(told_share=0.0).sample_noise(9, 3, torch.Generator()).any()


def test_a_positive_weight_multiplies_hidden_positives() -> None:
    # Class 2 has one annotated image, a positive: weight 1. Class 0: 2 images, 1 positive: 2.
    method = FedCTran(positive_weight="inverse-prevalence")
    local = told_client(method, LABELS, KNOWN, torch.zeros(2, 3))
    nothing = torch.zeros_like(KNOWN)
    loss = method.loss(local, told_batch(LABELS, KNOWN, nothing))
    assert loss.item() == pytest.approx((2 + 1 + 1 + 2 + 1) * math.log(2), rel=1e-6)


def test_of_seventeen_labels_at_most_twelve_are_revealed() -> None:
    counts = FedCTran().sample_noise(2000, 17, torch.Generator().manual_seed(0)).sum(1)
    assert counts.max() == 12
    assert counts.min() == 0


def test_it_trains_as_the_authors_do() -> None:
    expected = LocalTraining(
        epochs=5, batch_size=16, optimizer="adam", lr=1e-4, weight_decay=0.0, clip_norm=10.0
    )
    assert FedCTran().training == expected


def test_its_network() -> None:
    spec = FedCTran(layers=1, dropout=0.0).model_spec(ModelSpec(backbone="small-resnet"))
    assert spec == ModelSpec(
        backbone="small-resnet",
        head="c-tran",
        head_settings={"layers": 1, "attention_heads": 4, "dropout": 0.0},
    )


@pytest.mark.parametrize(
    ("annotated", "moved"),
    [
        (((0, 1, 2), (0, 1)), {"head.labels", "head.negative", "head.positive"}),
        # One label each: if it is revealed, none is hidden.
        (((0,), (1,), (2,)), {"head.labels"}),
    ],
)
def test_embeddings_are_learnt_if_one_label_can_predict_another(
    annotated: tuple[tuple[int, ...], ...], moved: set[str]
) -> None:
    method = make_method("fedc-tran", layers=1)
    federation = make_federation(annotated=annotated, rounds=1).fitted(method)
    before = federation.task.build_network().state_dict()
    after = federation.train(method)["weights"]
    assert {table for table in TABLES if not torch.equal(before[table], after[table])} == moved


def test_every_setting_matters() -> None:
    federation = make_federation(annotated=((0, 1, 2), (0, 1), (1, 2)), rounds=1)
    default = federation.train(make_method("fedc-tran"))
    for change in ({"told_share": 0.0}, {"dropout": 0.0}, {"attention_heads": 2}, {"layers": 2}):
        assert not same_bits(federation.train(make_method("fedc-tran", **change)), default), change


@pytest.mark.parametrize("backbone", ["small-cnn", "small-resnet"])
def test_a_client_with_one_image_trains(backbone: str) -> None:
    """Batch norm has several positions of one image."""
    method = make_method("fedc-tran", training=LocalTraining(epochs=3, batch_size=16))
    federation = make_federation(backbone=backbone, rounds=1)
    task = replace(federation.task, image_shape=(1, 16, 16))
    one = ClientData(
        name="site-0",
        images=torch.randint(0, 256, (1, 1, 16, 16), dtype=torch.uint8),
        indices=torch.arange(1),
        labels=tensor([[1, 0, 1]], dtype=torch.uint8),
        known=torch.ones(1, 3, dtype=torch.bool),
    )
    alone = Federation(replace(task, clients=("site-0",)), {"site-0": one})
    weights = alone.train(method)["weights"]
    assert all(bool(leaf.isfinite().all()) for _, leaf in leaves(weights))
    start = alone.fitted(method).task.build_network().state_dict()
    assert not torch.equal(start["head.output.weight"], weights["head.output.weight"])


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_a_share_that_hides_nothing_is_refused(share: float) -> None:
    with pytest.raises(UserError, match="told_share must be at least 0 and below 1"):
        FedCTran(told_share=share)
