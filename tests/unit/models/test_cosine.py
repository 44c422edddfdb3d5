from __future__ import annotations

import pytest
import torch
from torch import tensor

from fedquilt.models.heads.cosine import CosineHead, build_cosine_head
from fedquilt.models.heads.sphere import scores_of
from fedquilt.models.network import layout_of
from fedquilt.models.spec import ModelSpec


def test_rows_have_length_one_and_depend_on_the_seed():
    head = build_cosine_head(16, 30, seed=3)  # there may be more classes than features
    assert torch.allclose(head.weight.norm(dim=1), torch.ones(30))
    assert torch.equal(build_cosine_head(16, 30, seed=3).weight, head.weight)
    assert not torch.equal(build_cosine_head(16, 30, seed=4).weight, head.weight)


def test_scores_are_cosines_of_vectors_of_any_length():
    head = CosineHead(tensor([[2.0, 0.0], [0.0, 0.5]]))
    # (3, 4) has length 5: cosines 0.6 and 0.8; logits 4 (cosine - 1/2) = 0.4 and 1.2.
    logits = head(tensor([[3.0, 4.0]]))
    assert logits.tolist()[0] == pytest.approx([0.4, 1.2])
    assert scores_of(logits).tolist()[0] == pytest.approx([0.6, 0.8])


def test_rows_are_trained_as_head_rows_after_a_projection():
    spec = ModelSpec(head="cosine", projection=12)
    network = spec.build(channels=1, class_count=3, seed=1)
    assert layout_of(network, 3).head == ("head.weight",)
    assert network.head.weight.shape == (3, 12)
    network(torch.rand(2, 1, 8, 8)).logits.sum().backward()
    assert network.head.weight.grad.abs().sum() > 0


def test_a_row_of_zeros_scores_zero_and_has_finite_gradients():
    head = CosineHead(tensor([[1.0, 0.0], [0.0, 0.0]]))
    features = tensor([[3.0, 4.0]], requires_grad=True)
    logits = head(features)
    assert scores_of(logits)[0, 1].item() == pytest.approx(0.0, abs=1e-6)
    logits[:, 0].sum().backward()
    assert head.weight.grad[1].tolist() == [0.0, 0.0]
    assert bool(features.grad.isfinite().all())
