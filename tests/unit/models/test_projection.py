from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from fedquilt.core.errors import UserError
from fedquilt.core.tree import same_bits
from fedquilt.models.network import layout_of, read_weights
from fedquilt.models.spec import ModelSpec


def build(**settings):
    return ModelSpec(**settings).build(channels=1, class_count=3, seed=7)


def test_features_are_the_projection_and_the_head_takes_them():
    network = build(projection=5).eval()
    output = network(torch.rand(2, 1, 16, 16))
    assert output.features.shape == (2, 5)
    assert network.head.weight.shape == (3, 5)
    first, _, second = network.backbone.projection
    assert first.weight.shape == (64, 64)  # small-cnn has 64 features
    assert second.weight.shape == (5, 64)
    hidden = torch.relu(first(network.backbone.encoder(torch.zeros(1, 1, 16, 16))))
    assert torch.equal(network(torch.zeros(1, 1, 16, 16)).features, second(hidden))


def test_a_projection_as_wide_as_the_classes_belongs_to_the_body():
    layout = layout_of(build(projection=3), 3)
    assert layout.head == ("head.weight", "head.bias")
    assert "backbone.projection.2.weight" in layout.body


def test_a_projection_does_not_change_the_encoders_initial_weights():
    plain, projected = build().backbone, build(projection=8).backbone.encoder
    assert same_bits(dict(plain.named_parameters()), dict(projected.named_parameters()))


def test_the_projection_depends_on_the_seed_alone():
    one = build(backbone="small-cnn", projection=8)
    torch.manual_seed(1)
    assert same_bits(read_weights(build(backbone="small-cnn", projection=8)), read_weights(one))
    # Both backbones give 128 features, and draw different amounts of random numbers.
    other = ModelSpec(backbone="mlp", projection=8).build(channels=6, class_count=3, seed=7)
    deeper = ModelSpec(backbone="small-resnet", projection=8).build(
        channels=1, class_count=3, seed=7
    )
    assert torch.equal(other.backbone.projection[0].weight, deeper.backbone.projection[0].weight)


def test_initial_weights_are_read_into_the_encoder(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file({name: torch.ones_like(e) for name, e in build().backbone.state_dict().items()}, path)
    encoder = build(projection=4, weights=str(path)).backbone.encoder
    assert bool((encoder.conv1.weight == 1).all())


def test_a_width_below_one_is_refused():
    with pytest.raises(UserError, match="projection must be positive, found 0"):
        build(projection=0)
