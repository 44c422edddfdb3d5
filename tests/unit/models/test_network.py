from __future__ import annotations

import pytest
import torch
from torch import nn

from fedquilt.core.errors import UserError
from fedquilt.core.tree import same_bits
from fedquilt.models.feature_map import MapHead
from fedquilt.models.heads import HEADS, MAP_HEADS
from fedquilt.models.network import Layout, Network, layout_of, read_weights, write_weights
from fedquilt.models.spec import ModelSpec


class Body(nn.Module):
    """One layer, one batch norm, one frozen parameter and one derived table."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.norm = nn.BatchNorm1d(3)
        self.fixed = nn.Parameter(torch.ones(2), requires_grad=False)
        self.register_buffer("table", torch.ones(2), persistent=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.norm(self.layer(images.flatten(1)))


def tiny(head: nn.Module | None = None) -> Network:
    return Network(Body(), head or nn.Linear(3, 2))


def test_forward_returns_pooled_features_and_logits_of_the_head():
    network = tiny().eval()
    output = network(torch.rand(5, 1, 2, 2))
    assert output.features.shape == (5, 3)
    assert torch.equal(output.logits, network.head(output.features))


def test_layout_groups_entries_and_leaves_out_those_never_sent():
    assert layout_of(tiny(), 2) == Layout(
        body=(
            "backbone.layer.weight",
            "backbone.layer.bias",
            "backbone.norm.weight",
            "backbone.norm.bias",
        ),
        head=("head.weight", "head.bias"),
        buffers=("backbone.norm.running_mean", "backbone.norm.running_var"),
    )


def test_head_parameters_without_a_row_per_class_belong_to_the_body():
    layout = layout_of(tiny(nn.Sequential(nn.Linear(3, 7), nn.Linear(7, 2))), 2)
    assert layout.head == ("head.1.weight", "head.1.bias")
    assert {"head.0.weight", "head.0.bias"} <= set(layout.body)


def test_a_backbone_parameter_as_long_as_the_classes_is_not_head():
    assert "backbone.layer.weight" in layout_of(tiny(nn.Linear(3, 3)), 3).body


def test_read_weights_copies_every_entry_of_the_layout():
    network = tiny()
    weights = read_weights(network)
    assert set(weights) == set(layout_of(network, 2).names)
    before = {name: tensor.clone() for name, tensor in weights.items()}
    with torch.no_grad():
        network.head.bias.add_(1)
        network.backbone.norm.running_mean.add_(1)
    assert same_bits(weights, before)
    assert not any(tensor.requires_grad for tensor in weights.values())


def test_write_weights_restores_the_bits_in_place():
    network = ModelSpec(backbone="small-resnet").build(channels=1, class_count=3, seed=0)
    weights = read_weights(network)
    storage = network.head.weight.data_ptr()
    network(torch.rand(4, 1, 28, 28)).logits.sum().backward()  # changes the running statistics
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(2)
    assert not same_bits(read_weights(network), weights)
    write_weights(network, weights)
    assert same_bits(read_weights(network), weights)
    assert network.head.weight.data_ptr() == storage


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda weights: weights.pop("head.bias"), r"1 missing \(head.bias\)"),
        (lambda weights: weights.update(extra=torch.ones(1)), r"1 unexpected \(extra\)"),
        (
            lambda weights: weights.update({"head.bias": torch.ones(9)}),
            r"1 of another shape \(head.bias \(9,\) instead of \(2,\)\)",
        ),
    ],
)
def test_writing_other_names_or_shapes_is_refused_and_changes_nothing(edit, message):
    network = tiny()
    before = read_weights(network)
    weights = {name: tensor + 1 for name, tensor in before.items()}
    edit(weights)
    with pytest.raises(UserError, match=message):
        write_weights(network, weights)
    assert same_bits(read_weights(network), before)


@pytest.mark.parametrize("head", MAP_HEADS)
@pytest.mark.parametrize("backbone", ["small-cnn", "mobilenetv3_small_050", "vit_tiny_patch16_224"])
def test_map_heads_fit_every_kind_of_backbone(head, backbone):
    """The second has wider features after pooling, the third has tokens instead of a map."""
    network = ModelSpec(backbone=backbone, head=head).build(channels=3, class_count=2, seed=0)
    side = 224 if backbone.startswith("vit") else 32
    output = network.eval()(torch.zeros(2, 3, side, side))
    assert output.logits.shape == (2, 2)
    assert output.features.shape[0] == 2


def test_map_heads_are_listed():
    for name in HEADS:
        network = ModelSpec(head=name).build(channels=1, class_count=2, seed=0)
        assert isinstance(network.head, MapHead) == (name in MAP_HEADS)
