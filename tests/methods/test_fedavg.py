"""FedAvg, FedAvg-PL and the bounds: supervision of the loss, and averaging of weights."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from support.tiny_federation import CLASSES, make_federation, make_method, synthetic_images

from fedquilt.core.tree import same_bits
from fedquilt.data.batches import Batch
from fedquilt.methods.centralised import Centralised
from fedquilt.methods.fedavg import FedAvg
from fedquilt.methods.fedavg_pl import FedAvgPL
from fedquilt.methods.full_labels import FullLabels
from fedquilt.metrics import roc_auc
from fedquilt.training.rounds import start_server
from fedquilt.training.server_optimizer import ServerOptimizer

LABELS = torch.tensor([[1.0, 5.0, 0.0], [0.0, -3.0, 1.0]])  # the middle column is garbage
KNOWN = torch.tensor([[True, False, True], [True, False, True]])
BATCH = Batch(views=(), labels=LABELS, known=KNOWN, rows=torch.arange(2))


def test_fedavg_treats_missing_labels_as_negatives() -> None:
    labels, known = FedAvg().supervision(BATCH)
    assert labels.tolist() == [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    assert bool(known.all())


def test_the_partial_loss_uses_annotated_labels_only() -> None:
    _, known = FedAvgPL().supervision(BATCH)
    assert known.tolist() == KNOWN.tolist()


def test_positive_weights_come_from_annotated_labels_only() -> None:
    """w_c = annotated / positives; 1 for a class without annotated positives."""
    data = make_federation(garbage=1).clients["site-0"]  # annotates class 0 only
    positives = int(data.labels[:, 0].sum())
    weight = FedAvg().init_client(data)["positive_weight"]
    assert weight.tolist() == pytest.approx([len(data) / positives, 1.0, 1.0])


def test_a_head_row_without_annotators_in_the_cohort_is_left_unchanged() -> None:
    """With head_rows = annotated, only annotators change a row."""
    federation = make_federation(rounds=1)
    method = make_method("fedavg-pl", head_rows="annotated")
    before = federation.task.build_network().head.weight
    after = federation.train(method, cohort_size=1)["weights"]["head.weight"]
    moved = [not torch.equal(after[row], before[row]) for row in range(len(CLASSES))]
    assert sum(moved) == 1


def test_annotators_alone_decide_their_row_bit_for_bit() -> None:
    """One annotator of a class: its head row is copied, whatever the other clients' rows did."""
    annotated = ((0, 1, 2), (1, 2))
    alone = make_federation(annotated=((0, 1, 2),), rounds=1)
    both = make_federation(annotated=annotated, rounds=1)
    method = make_method("fedavg-pl", head_rows="annotated")
    row_alone = alone.train(method)["weights"]["head.weight"][0]
    row_both = both.train(method)["weights"]["head.weight"][0]
    assert torch.equal(row_alone, row_both)


@pytest.mark.parametrize("name", ["fedavg-pl", "fedprox", "fedcurv", "moon", "fedpu"])
def test_a_client_without_annotated_labels_does_not_count(name: str) -> None:
    """Its loss is 0; its images would only dilute the others' changes."""
    alone = make_federation(annotated=((0, 1, 2),), rounds=1)
    beside = make_federation(annotated=((0, 1, 2), ()), rounds=1)
    method = make_method(name)
    assert same_bits(beside.train(method)["weights"], alone.train(method)["weights"])


def test_a_cohort_without_annotated_labels_leaves_the_weights() -> None:
    federation = make_federation(annotated=((0, 1, 2), ()), rounds=1)
    method = make_method("fedavg-pl")
    engine = federation.engine()
    server = start_server(method, federation.task, engine)
    totals = engine.exchange(method, method.broadcast(server), 0, ["site-1"])
    assert same_bits(method.update(server, totals)["weights"], server["weights"])


def test_server_momentum_changes_the_second_round_not_the_first() -> None:
    plain = make_method("fedavg-pl")
    pushed = replace(plain, server_step=ServerOptimizer(momentum=0.9))
    for rounds, equal in ((1, True), (2, False)):
        federation = make_federation(rounds=rounds)
        one, two = federation.train(plain), federation.train(pushed)
        assert same_bits(one["weights"], two["weights"]) is equal


def test_batch_norm_statistics_are_averaged_without_momentum() -> None:
    """Momentum could push a running variance below zero."""
    federation = make_federation(rounds=4, backbone="small-resnet")
    method = replace(make_method("fedavg"), server_step=ServerOptimizer(momentum=0.95))
    weights = federation.train(method)["weights"]
    variances = [value for name, value in weights.items() if name.endswith("running_var")]
    assert variances
    assert all(bool((value > 0).all()) for value in variances)


@pytest.mark.parametrize("bound", [Centralised(), FullLabels()])
def test_bounds_declare_what_no_federation_has(bound: FedAvg) -> None:
    assert bound.needs_complete_labels
    assert bound.needs_pooled_data is isinstance(bound, Centralised)


def test_fedavg_collapses_when_all_but_one_class_is_missing() -> None:
    """Assumed negatives outvote the one annotator: nothing is predicted present, so BACC is 1/2."""
    federation = make_federation(images_each=60, rounds=15)
    weights = federation.train(make_method("fedavg", positive_weight="none"))["weights"]
    partial = federation.train(make_method("fedavg-pl", positive_weight="none"))["weights"]
    images = torch.cat([data.images for data in federation.clients.values()])
    workspace = federation.engine().workspace

    def present(model: dict[str, torch.Tensor]) -> int:
        logits = workspace.forward(model, images.float() / 127.5 - 1).logits
        return int((logits > 0).sum())

    assert present(weights) == 0
    assert present(partial) > 60


@pytest.mark.parametrize("has_negatives", [False, True])
def test_positives_alone_drive_every_score_to_one(has_negatives: bool) -> None:
    """One class per client and no negatives: predicting present everywhere has no loss.

    200 new images, 40 % positive in each class; with negatives the same images are learnt.
    """
    federation = make_federation(images_each=60, rounds=15)
    clients = {}
    for column, (name, data) in enumerate(federation.clients.items()):
        rows = (has_negatives | (data.labels[:, column] == 1)).nonzero().flatten()
        parts = {key: getattr(data, key)[rows] for key in ("indices", "labels", "known")}
        clients[name] = replace(data, **parts)
    federation = replace(federation, clients=clients)
    weights = federation.train(make_method("fedavg-pl", positive_weight="none"))["weights"]
    generator = torch.Generator().manual_seed(99)
    labels = (torch.rand(200, 3, generator=generator) < 0.4).to(torch.uint8)
    images = synthetic_images(labels, generator).float() / 127.5 - 1
    scores = torch.sigmoid(federation.engine().workspace.forward(weights, images).logits)
    auc = roc_auc(scores, labels, torch.ones_like(labels, dtype=torch.bool)).mean().item()
    assert bool((scores > 0.999).all()) is not has_negatives
    assert (auc > 0.95) if has_negatives else (0.4 < auc < 0.6)
