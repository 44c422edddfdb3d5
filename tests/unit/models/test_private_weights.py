from __future__ import annotations

import torch

from fedquilt.models.network import Layout
from fedquilt.models.private_weights import private_weights, shared_layout, shared_weights


def test_private_and_shared_weights_by_prefix():
    weights = {name: torch.ones(1) for name in ("body.a", "head.graph.a", "head.b", "head.edges")}
    private = ("head.graph.", "head.edges")
    assert list(private_weights(weights, private)) == ["head.graph.a", "head.edges"]
    assert list(shared_weights(weights, private)) == ["body.a", "head.b"]
    layout = Layout(body=("body.a", "head.graph.a"), head=("head.b",), buffers=("head.edges",))
    assert shared_layout(layout, private) == Layout(("body.a",), ("head.b",), ())


def test_without_prefixes_everything_is_shared():
    weights = {"a": torch.ones(1)}
    assert shared_weights(weights, ()) == weights
    assert private_weights(weights, ()) == {}
    assert shared_layout(Layout(("a",), (), ()), ()) == Layout(("a",), (), ())
