"""Grey images in three channels: a trained convolution before the backbone."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from fedquilt.core.errors import UserError
from fedquilt.core.tree import same_bits
from fedquilt.models.network import layout_of, read_weights
from fedquilt.models.spec import ModelSpec


def build(channels: int = 1, **settings):
    spec = ModelSpec(backbone="small-resnet", **settings)
    return spec.build(channels=channels, class_count=3, seed=7)


def test_the_stem_makes_three_channels_and_is_trained():
    network = build(colour_stem=True)
    assert network.backbone.encoder.conv1.weight.shape[1] == 3
    layout = layout_of(network, 3)
    assert "backbone.colour.0.weight" in layout.body
    assert "backbone.colour.1.running_mean" in layout.buffers
    network.eval()
    images = torch.rand(2, 1, 16, 16)
    coloured = network.backbone.colour(images)
    assert coloured.shape == (2, 3, 16, 16)
    assert torch.equal(network(images).features, network.backbone.encoder(coloured))


def test_colour_images_need_no_stem():
    assert same_bits(read_weights(build(3, colour_stem=True)), read_weights(build(3)))


def test_weights_of_three_channels_are_read_as_they_are(tmp_path):
    path = tmp_path / "weights.safetensors"
    ones = {name: torch.ones_like(e) for name, e in build(3).backbone.state_dict().items()}
    save_file(ones, path)
    encoder = build(colour_stem=True, weights=str(path)).backbone.encoder
    assert bool((encoder.conv1.weight == 1).all())  # summed over channels it would be 3


def test_the_stem_depends_on_the_seed_alone():
    one = read_weights(build(colour_stem=True))
    torch.manual_seed(1)
    assert same_bits(read_weights(build(colour_stem=True)), one)


def test_a_head_on_the_feature_map_is_refused():
    network = build(colour_stem=True, head="ladm")
    with pytest.raises(UserError, match="neither projection nor colour stem"):
        network(torch.rand(2, 1, 16, 16))
