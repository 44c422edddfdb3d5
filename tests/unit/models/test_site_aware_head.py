from __future__ import annotations

import pytest
import torch
from torch import nn

from fedquilt.core.errors import UserError
from fedquilt.core.tree import same_bits
from fedquilt.models.heads.layers.class_branches import ClassBranches, ClassOutputs
from fedquilt.models.heads.site_aware import build_site_aware
from fedquilt.models.network import layout_of, read_weights
from fedquilt.models.spec import ModelSpec


def spec(**settings: int | bool) -> ModelSpec:
    return ModelSpec(head="site-aware", head_settings={"width": 6, **settings})


@pytest.mark.parametrize("is_training", [True, False])
def test_branches_equal_separate_layers_per_class(is_training: bool):
    branches = ClassBranches(feature_count=5, class_count=3, width=4).train(is_training)
    features = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    separate = []
    for row in range(3):
        layers: list[nn.Module] = []
        for layer, narrow in ((branches.first, 5), (branches.second, 4)):
            linear, norm = nn.Linear(narrow, 4, bias=False), nn.BatchNorm1d(4)
            linear.weight.data = layer.weight.data[row].T
            layers += [linear, norm, nn.ReLU()]
        separate.append(nn.Sequential(*layers).train(is_training)(features))
    torch.testing.assert_close(branches(features), torch.stack(separate, 1))


def test_branches_are_head_rows_and_the_graph_has_its_own_prefix():
    network = spec().build(channels=1, class_count=3, seed=0)
    layout = layout_of(network, 3)
    assert all(name.startswith("head.branches.") for name in layout.head)
    assert len(layout.head) == 6  # weight, scale and shift, twice
    others = [name for name in layout.names if name.startswith("head.") and name not in layout.head]
    graph = [name for name in others if name.startswith("head.graph.")]
    assert set(others) - set(graph) == {
        "head.edges",
        *(
            f"head.branches.{layer}.norm.{what}"
            for layer in ("first", "second")
            for what in ("running_mean", "running_var")
        ),
    }


def test_logits_have_one_column_per_class_and_depend_on_the_seed():
    network = spec().build(channels=1, class_count=3, seed=0)
    output = network(torch.rand(4, 1, 8, 8))
    assert output.logits.shape == (4, 3)
    one, two, other = (
        read_weights(spec().build(channels=1, class_count=3, seed=seed)) for seed in (0, 0, 1)
    )
    assert same_bits(one, two)
    assert not torch.equal(one["head.graph.output.edge.bias"], other["head.graph.output.edge.bias"])


def test_in_evaluation_images_are_independent():
    network = spec().build(channels=1, class_count=3, seed=0).eval()
    images = torch.rand(2, 1, 8, 8)
    other = torch.stack([1 - images[0], images[1]])
    assert torch.equal(network(images).logits[1], network(other).logits[1])


def test_an_output_is_a_row_of_weights_and_batch_norm():
    outputs = ClassOutputs(class_count=3, width=4)
    nodes = torch.randn(7, 3, 4, generator=torch.Generator().manual_seed(0))
    found = outputs(nodes)
    for column in range(3):
        logits = nodes[:, column] @ outputs.weight[column]
        normed = (logits - logits.mean()) / (logits.var(unbiased=False) + outputs.norm.eps).sqrt()
        torch.testing.assert_close(found[:, column], normed)


def test_without_a_graph_each_class_has_its_own_output():
    network = spec(graph=False).build(channels=1, class_count=3, seed=0).eval()
    names = read_weights(network).keys()
    assert not any("graph" in name or "edges" in name for name in names)
    before = network(torch.ones(2, 1, 8, 8)).logits
    with torch.no_grad():
        network.head[1].weight[1] += 1.0
    after = network(torch.ones(2, 1, 8, 8)).logits
    assert torch.equal(before[:, [0, 2]], after[:, [0, 2]])
    assert not torch.equal(before[:, 1], after[:, 1])


def test_a_width_must_be_positive():
    with pytest.raises(UserError, match="width of at least 1, found 0"):
        build_site_aware(4, 3, 0, width=0)
