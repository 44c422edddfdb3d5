"""FedPU: risks from positives and unlabelled images, on the numbers of its card and by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from support.scalar_client import one_image
from support.tiny_federation import Federation, make_federation, make_method, synthetic_images
from torch import Tensor, tensor

from fedquilt.core.errors import UserError
from fedquilt.core.tree import same_bits
from fedquilt.data.batches import Batch
from fedquilt.losses.positive_unlabelled import nonnegative_risk, softmax_risk
from fedquilt.methods.fedpu import FedPU
from fedquilt.models.network import Output
from fedquilt.training.client import Workspace

# The card: classes 0 and 1 are labelled here; image 0 is of class 0, image 1 is unlabelled.
SHARES = tensor([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3]], dtype=torch.float64)
POSITIVE = tensor([[True, False, False], [False, False, False]])
OWNED = tensor([True, True, False])
PRIOR = tensor([0.2, 0.3, 0.5], dtype=torch.float64)


def test_softmax_risk_of_the_card() -> None:
    # Cross-entropy -ln 0.6 = 0.5108256; unlabelled -(ln 0.8 + ln 0.5) / 3 = 0.3054292 (by all
    # 3 classes, as the authors' code divides); labelled 0.2 * -ln 0.4 = 0.1832576.
    found = softmax_risk(SHARES.log(), POSITIVE, OWNED, PRIOR, weight=1.0)
    assert found.item() == pytest.approx(0.6329971, abs=6e-8)
    entropy = softmax_risk(SHARES.log(), POSITIVE, OWNED, PRIOR, weight=0.0)
    assert entropy.item() == pytest.approx(0.5108256, abs=6e-8)


def test_softmax_risk_without_labelled_or_without_unlabelled_images() -> None:
    unlabelled = softmax_risk(SHARES[1:].log(), POSITIVE[1:], OWNED, PRIOR, weight=1.0)
    assert unlabelled.item() == pytest.approx(0.3054292, abs=6e-8)
    labelled = softmax_risk(SHARES[:1].log(), POSITIVE[:1], OWNED, PRIOR, weight=1.0)
    assert labelled.item() == pytest.approx(0.5108256 - 0.1832576, abs=1e-7)


def test_softmax_risk_of_a_sure_mistake_is_finite() -> None:
    logits = tensor([[100.0, 0.0]], requires_grad=True)
    no_label = tensor([[False, False]])
    risk = softmax_risk(logits, no_label, tensor([True, False]), tensor([0.1, 0.1]), weight=1.0)
    risk.backward()
    assert risk.item() == pytest.approx(13.8155 / 2, abs=1e-3)  # -ln 1e-6, by 2 classes
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())


def _one_class(prior: float) -> tuple[Tensor, Tensor]:
    """A positive at logit 1, unlabelled images at 0 and -1."""
    logits = tensor([[1.0], [0.0], [-1.0]], dtype=torch.float64, requires_grad=True)
    positive = tensor([[True], [False], [False]])
    share = tensor([prior], dtype=torch.float64)
    risk, has_positive = nonnegative_risk(logits, positive, ~positive, share)
    assert has_positive.tolist() == [True]
    risk.sum().backward()
    assert logits.grad is not None
    return risk, logits.grad


def test_nonnegative_risk_by_hand() -> None:
    # softplus(-1) = 0.3132617, softplus(0) = 0.6931472, softplus(1) = 1.3132617.
    # 0.3 * 0.3132617 + (0.6931472 + 0.3132617) / 2 - 0.3 * 1.3132617 = 0.2032044
    risk, gradient = _one_class(prior=0.3)
    assert risk.item() == pytest.approx(0.2032044, abs=1e-7)
    # On the positive -0.3 sigmoid(-1) - 0.3 sigmoid(1) = -0.3; unlabelled sigmoid(z) / 2.
    assert gradient.flatten().tolist() == pytest.approx([-0.3, 0.25, 0.1344707], abs=1e-7)


def test_the_risk_of_unlabelled_images_is_never_negative() -> None:
    # 0.5032044 - 0.5 * 1.3132617 < 0, so only 0.5 * 0.3132617 is left.
    risk, gradient = _one_class(prior=0.5)
    assert risk.item() == pytest.approx(0.1566308, abs=1e-7)
    assert gradient[1:].flatten().tolist() == [0.0, 0.0]


def test_a_batch_without_a_positive_says_nothing() -> None:
    nobody = torch.zeros(2, 1, dtype=torch.bool)
    risk, has_positive = nonnegative_risk(torch.ones(2, 1), nobody, ~nobody, tensor([0.3]))
    assert risk.tolist() == [0.0]
    assert has_positive.tolist() == [False]


def test_without_classes_of_positives_only_it_is_fedavg_pl_bit_for_bit() -> None:
    federation = make_federation(annotated=((0, 1), (1,), (0, 2)))
    assert same_bits(
        federation.train(make_method("fedpu")), federation.train(make_method("fedavg-pl"))
    )


def _positives_only(
    share: float, *, garbage: int = 0, rounds: int = 2, images_each: int = 21
) -> Federation:
    """Every client has marked this share of its positives of all classes, and nothing else."""
    everything = ((0, 1, 2), (0, 1, 2))
    federation = make_federation(annotated=everything, rounds=rounds, images_each=images_each)
    clients = {}
    for name, data in federation.clients.items():
        draws = torch.rand(data.labels.shape, generator=torch.Generator().manual_seed(5))
        known = (data.labels == 1) & (draws < share)
        hidden = torch.full_like(data.labels, garbage)
        clients[name] = replace(data, known=known, labels=torch.where(known, data.labels, hidden))
    return replace(federation, clients=clients)


@pytest.mark.parametrize("garbage", [1, 7])
def test_garbage_in_unannotated_labels_changes_no_bit(garbage: int) -> None:
    method = make_method("fedpu", prior=(0.3,))
    clean = _positives_only(0.5).train(method)
    assert same_bits(clean, _positives_only(0.5, garbage=garbage).train(method))


def test_it_learns_from_positives_and_unannotated_images() -> None:
    """40 % of images are positive, half of them annotated: among the others 0.2 / 0.8 = 0.25 are.

    2 clients of 60 images, 12 rounds, tested on 200 new images; the first ranks nearly all pairs
    of a class right, binary cross-entropy on positives alone cannot rank.
    """
    federation = _positives_only(0.5, rounds=12, images_each=60)
    found = _auc(federation, make_method("fedpu", prior=(0.25,)))
    assert found > 0.9
    assert _auc(federation, make_method("fedavg-pl")) < found - 0.1


def _auc(federation: Federation, method: FedPU) -> float:
    """The share of (positive, negative) pairs in the right order, mean over classes."""
    generator = torch.Generator().manual_seed(99)
    labels = torch.rand(200, 3, generator=generator) < 0.4
    images = synthetic_images(labels.to(torch.uint8), generator)
    weights = federation.train(method)["weights"]
    workspace = Workspace.of(federation.task, torch.device("cpu"))
    logits = workspace.forward(weights, (images / 255 - 0.5) / 0.5).logits
    shares = [
        (column[truth][:, None] > column[~truth]).float().mean()
        for column, truth in zip(logits.T, labels.T)
    ]
    return torch.stack(shares).mean().item()


def test_classes_of_both_kinds_count_the_same() -> None:
    """Class 0 has positives only, class 1 negatives too, class 2 is unannotated and not trained."""
    logits = tensor([[1.0, 0.0, 5.0], [0.0, 0.0, 5.0], [-1.0, 0.0, 5.0]], requires_grad=True)
    known = tensor([[True, True, False], [False, True, False], [False, True, False]])
    labels = tensor([[1, 1, 0], [0, 0, 0], [0, 0, 0]], dtype=torch.uint8)
    data = replace(one_image(), indices=torch.arange(3), labels=labels, known=known)
    method = FedPU(prior=(0.3, 0.4, 0.4), positive_weight="none")
    state = method.init_client(data)
    assert state["owned"].tolist() == [True, False, False]
    assert state["prior"].tolist() == pytest.approx([0.3, 0.4, 0.4])
    local = SimpleNamespace(state=state, model=lambda images: Output(images, logits))
    batch = Batch((torch.zeros(3, 1),), labels.float(), known, torch.arange(3))
    loss = method.loss(local, batch)  # type: ignore[arg-type]
    loss.backward()
    # 0.2032044 of class 0 as above, ln 2 = 0.6931472 of class 1.
    assert loss.item() == pytest.approx((0.2032044 + 0.6931472) / 2, abs=1e-6)
    assert logits.grad is not None
    assert not logits.grad[:, 2].any()


def test_the_published_variant_trains_on_single_label_data() -> None:
    federation = _positives_only(1.0)
    clients = {
        name: replace(data, known=data.known & (data.known.cumsum(1) == 1))
        for name, data in federation.clients.items()
    }
    federation = replace(federation, clients=clients)
    method = make_method("fedpu", prior=(0.2,), **FedPU.variants["published"])
    weights = federation.train(method)["weights"]
    assert all(bool(entry.isfinite().all()) for entry in weights.values())
    with pytest.raises(UserError, match="positive for several classes"):
        _positives_only(1.0).train(method)


def test_a_missing_or_misshaped_prior_is_refused() -> None:
    federation = _positives_only(0.5)
    with pytest.raises(UserError, match="'site-0' has positives but no negatives in 3 of 3"):
        federation.train(make_method("fedpu"))
    with pytest.raises(UserError, match="prior has 2 numbers for 3 classes; give 1 or 3"):
        federation.train(make_method("fedpu", prior=(0.1, 0.2)))
    with pytest.raises(UserError, match="prior must be between 0 and 1"):
        FedPU(prior=(0.0,))
