from __future__ import annotations

import pytest
import torch
from torch import tensor

from fedquilt.core.errors import UserError
from fedquilt.models.heads.sphere import SphereHead, build_sphere_head, on_sphere, scores_of
from fedquilt.models.network import layout_of, read_weights, write_weights
from fedquilt.models.spec import ModelSpec

SPEC = ModelSpec(head="sphere")


def test_rows_are_orthonormal_and_depend_on_the_seed():
    head = build_sphere_head(16, 5, seed=3)
    assert torch.allclose(head.weight @ head.weight.T, torch.eye(5), atol=1e-6)
    assert torch.equal(build_sphere_head(16, 5, seed=3).weight, head.weight)
    assert not torch.equal(build_sphere_head(16, 5, seed=4).weight, head.weight)


def test_more_classes_than_features_are_refused():
    assert build_sphere_head(4, 4, seed=0).weight.shape == (4, 4)
    with pytest.raises(UserError, match="found 4 features and 5 classes"):
        build_sphere_head(4, 5, seed=0)


def test_scores_are_cosines_and_one_half_is_a_logit_of_zero():
    head = SphereHead(torch.eye(2))
    # (3, 4) has length 5: scores 0.6 and 0.8; logits 4 (s - 1/2) = 0.4 and 1.2.
    logits = head(tensor([[3.0, 4.0]]))
    assert logits.tolist()[0] == pytest.approx([0.4, 1.2])
    assert scores_of(logits).tolist()[0] == pytest.approx([0.6, 0.8])
    features = 10 * torch.randn(50, 16, generator=torch.Generator().manual_seed(0))
    scores = scores_of(build_sphere_head(16, 3, seed=0)(features))
    assert scores.abs().max() <= 1 + 1e-6
    assert torch.allclose(on_sphere(features).norm(dim=1), torch.ones(50))


def test_a_feature_of_zeros_gives_finite_gradients():
    features = torch.zeros(1, 4, requires_grad=True)
    build_sphere_head(4, 2, seed=0)(features).sum().backward()
    assert bool(features.grad.isfinite().all())


def test_the_rows_are_not_trained_and_are_stored_with_the_weights():
    network = SPEC.build(channels=1, class_count=3, seed=1)
    layout = layout_of(network, 3)
    assert layout.head == ()
    assert layout.buffers == ("head.weight",)
    network(torch.rand(2, 1, 8, 8)).logits.sum().backward()
    assert network.head.weight.grad is None
    other = SPEC.build(channels=1, class_count=3, seed=2)  # as when a model is loaded
    write_weights(other, read_weights(network))
    images = torch.rand(4, 1, 8, 8)
    assert torch.equal(other.eval()(images).logits, network.eval()(images).logits)
