"""The head with a hidden layer: shapes, groups of weights, seeds, and its settings."""

from __future__ import annotations

import pytest
import torch

from fedquilt.core.errors import UserError
from fedquilt.models.network import layout_of, read_weights
from fedquilt.models.spec import ModelSpec


def _built(seed: int = 0, **settings: int):
    spec = ModelSpec(head="hidden-layer", head_settings=settings)
    return spec.build(channels=1, class_count=3, seed=seed)


def test_only_the_last_layer_has_a_row_per_class():
    network = _built()
    layout = layout_of(network, 3)
    assert layout.head == ("head.rows.weight", "head.rows.bias")
    assert {name for name in layout.body if name.startswith("head.")} == {
        *("head.hidden.weight", "head.hidden.bias", "head.norm.weight", "head.norm.bias")
    }


def test_the_hidden_layer_is_twice_as_wide_as_the_features_or_as_set():
    wide, narrow = _built().head, _built(width=5).head
    assert wide.hidden.out_features == 2 * wide.hidden.in_features
    assert narrow.rows.in_features == 5


def test_the_score_is_worked_out_by_hand():
    # One feature of 2; hidden (2, -2) by weights 1 and -1; the layer norm keeps (1, -1) up to its
    # epsilon; GELU gives 0.841345 and -0.158655; the row (1, 1) adds them: 0.68269.
    head = ModelSpec(head="hidden-layer").build(channels=1, class_count=3, seed=0).head
    small = type(head)(1, 1, 2, 0)
    with torch.no_grad():
        small.hidden.weight.copy_(torch.tensor([[1.0], [-1.0]]))
        small.rows.weight.fill_(1.0)
    assert small(torch.tensor([[2.0]])).item() == pytest.approx(0.68269, abs=1e-4)


def test_the_seed_decides_the_weights():
    one, same, other = (read_weights(_built(seed)) for seed in (1, 1, 2))
    assert torch.equal(one["head.hidden.weight"], same["head.hidden.weight"])
    assert not torch.equal(one["head.hidden.weight"], other["head.hidden.weight"])


@pytest.mark.parametrize("width", [0, 3])
def test_a_width_that_would_look_like_head_rows_is_refused(width: int):
    with pytest.raises(UserError, match="width must be positive and not the number"):
        _built(width=width)
