"""The simplex ETF, and heads that use its vectors as a classifier."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import tensor

from fedquilt.core.errors import UserError
from fedquilt.models.heads.layers.class_directions import build_etf_head
from fedquilt.models.heads.layers.etf import simplex_etf
from fedquilt.models.network import layout_of, read_weights
from fedquilt.models.spec import ModelSpec


@pytest.mark.parametrize(("classes", "cosine"), [(2, -1.0), (3, -0.5), (7, -1 / 6)])
@pytest.mark.parametrize("seed", [None, 4])
def test_vectors_are_maximally_separated(classes, cosine, seed):
    frame = simplex_etf(16, classes, seed)
    expected = torch.full((classes, classes), cosine).fill_diagonal_(1.0)
    assert torch.allclose(frame @ frame.T, expected, atol=1e-6)
    assert torch.allclose(frame.sum(0), torch.zeros(16), atol=1e-6)
    assert int(torch.linalg.matrix_rank(frame, atol=1e-5)) == classes - 1


def test_without_a_seed_it_spans_the_first_axes():
    # sqrt(3 / 2) (I - 1/3): 0.816497 on the diagonal, -0.408248 elsewhere
    frame = simplex_etf(5, 3)
    assert frame[0].tolist() == pytest.approx([0.816497, -0.408248, -0.408248, 0, 0], abs=1e-6)
    assert not frame[:, 3:].any()
    assert frame.dtype == torch.float32


def test_only_the_seed_rotates_it():
    torch.manual_seed(0)
    frame = simplex_etf(8, 3, 1)
    torch.manual_seed(1)
    assert torch.equal(simplex_etf(8, 3, 1), frame)
    assert not torch.allclose(simplex_etf(8, 3, 2), frame, atol=0.01)
    assert frame[:, 3:].abs().max() > 0.1


def test_one_class_and_more_classes_than_features_are_refused():
    assert simplex_etf(3, 3).shape == (3, 3)
    with pytest.raises(UserError, match="at least two classes, found 1"):
        simplex_etf(8, 1)
    with pytest.raises(UserError, match="found 3 features and 4 classes"):
        simplex_etf(3, 4)


@pytest.mark.parametrize("kappa", [0.5, 3.0])
def test_a_feature_along_its_own_vector(kappa):
    # kappa for its class, -kappa / (C - 1) for the others: log(1 + (C - 1) e^(-kappa C / (C - 1)))
    head = build_etf_head(8, 4, seed=0)
    scores = head(kappa * head.rows[2])
    assert scores.tolist() == pytest.approx([-kappa / 3, -kappa / 3, kappa, -kappa / 3], abs=1e-6)
    loss = F.cross_entropy(scores, tensor(2)).item()
    assert loss == pytest.approx(math.log(1 + 3 * math.exp(-kappa * 4 / 3)), abs=1e-6)


def test_factor_and_bias_are_learnt_and_the_frame_is_not():
    head = build_etf_head(3, 3, seed=0, scale=10.0, bias=True)
    assert {name for name, _ in head.named_parameters()} == {"scale", "bias"}
    with torch.no_grad():
        head.bias.copy_(tensor([0.0, 1.0, 0.0]))
    # 10 * (0.816497, -0.408248, -0.408248) and 1 more for the second class
    expected = [8.16497, -3.08248, -4.08248]
    assert head(tensor([1.0, 0.0, 0.0])).tolist() == pytest.approx(expected, abs=1e-5)
    assert head.cosines(tensor([5.0, 0.0, 0.0])).tolist() == pytest.approx(
        [0.816497, -0.408248, -0.408248], abs=1e-6
    )


def test_cosines_of_a_feature_of_zeros_have_finite_gradients():
    features = torch.zeros(1, 3, requires_grad=True)
    build_etf_head(3, 3, seed=0).cosines(features).sum().backward()
    assert bool(features.grad.isfinite().all())


def test_fixed_rows_are_not_sent_and_trained_rows_are():
    fixed = ModelSpec(head="etf").build(channels=1, class_count=3, seed=0)
    assert not any(name.startswith("head.") for name in read_weights(fixed))
    trained = ModelSpec(head="etf", head_settings={"train_classifier": True}).build(
        channels=1, class_count=3, seed=0
    )
    assert layout_of(trained, 3).head == ("head.rows",)
    assert torch.equal(trained.head.rows, fixed.head.rows)


def test_a_network_with_the_head_scores_pooled_features():
    network = ModelSpec(head="etf", head_settings={"etf_seed": 3}).build(
        channels=1, class_count=3, seed=0
    )
    output = network(torch.rand(2, 1, 8, 8))
    assert output.per_class is None
    expected = output.features @ simplex_etf(64, 3, 3).T
    assert torch.allclose(output.logits, expected)
