"""The softmax head: its logits are the log-odds of softmax probabilities."""

from __future__ import annotations

import math

import pytest
import torch
from torch import tensor

from fedquilt.core.errors import UserError
from fedquilt.core.tree import same_bits
from fedquilt.models.heads.softmax import build_softmax_head, log_odds
from fedquilt.models.network import layout_of, read_weights
from fedquilt.models.spec import ModelSpec


def test_log_odds_by_hand():
    # Scores ln 1, ln 2, ln 5: probabilities 1/8, 2/8, 5/8; odds 1/7, 2/6, 5/3.
    found = log_odds(tensor([[0.0, math.log(2), math.log(5)]]))
    expected = [-math.log(7), -math.log(3), math.log(5 / 3)]
    assert found[0].tolist() == pytest.approx(expected, abs=1e-6)


def test_the_sigmoid_of_the_logits_is_the_softmax_with_its_gradients():
    generator = torch.Generator().manual_seed(0)
    scores = (5 * torch.randn(20, 6, generator=generator)).requires_grad_()
    logits = log_odds(scores)
    torch.testing.assert_close(torch.sigmoid(logits), torch.softmax(scores, 1))
    targets = torch.randint(6, (20,), generator=generator)
    ours = -torch.nn.functional.logsigmoid(logits).gather(1, targets[:, None]).mean()
    plain = torch.nn.functional.cross_entropy(scores, targets)
    torch.testing.assert_close(ours, plain)
    (found,), (expected,) = (torch.autograd.grad(each, scores) for each in (ours, plain))
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)


def test_far_apart_scores_have_finite_logits_and_gradients():
    scores = tensor([[1e4, 0.0, -1e4]], requires_grad=True)
    logits = log_odds(scores)
    assert logits[0].tolist() == [1e4, -1e4, -2e4]
    torch.nn.functional.logsigmoid(logits).sum().backward()
    assert bool(scores.grad.isfinite().all())


def test_it_has_the_weights_and_the_names_of_the_linear_head():
    linear, softmax = (
        ModelSpec(head=head).build(channels=1, class_count=3, seed=4)
        for head in ("linear", "softmax")
    )
    assert same_bits(read_weights(linear), read_weights(softmax))
    assert layout_of(softmax, 3).head == ("head.weight", "head.bias")
    images = torch.rand(2, 1, 8, 8)
    torch.testing.assert_close(softmax(images).logits, log_odds(linear(images).logits))


def test_only_a_linear_head_can_become_a_softmax():
    spec = ModelSpec(backbone="small-resnet")
    assert spec.with_softmax() == ModelSpec(backbone="small-resnet", head="softmax")
    assert spec.with_softmax().with_softmax() == spec.with_softmax()
    with pytest.raises(UserError, match=r"model.head must be 'linear' .*, found 'sphere'"):
        ModelSpec(head="sphere").with_softmax()


def test_a_single_class_is_refused():
    with pytest.raises(UserError, match="two classes or more, found 1"):
        build_softmax_head(4, 1, 0)
