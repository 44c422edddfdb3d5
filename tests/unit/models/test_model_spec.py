from __future__ import annotations

import pytest
import torch

from fedquilt.core.errors import UserError
from fedquilt.core.tree import same_bits
from fedquilt.models.heads.linear import build_head
from fedquilt.models.network import read_weights
from fedquilt.models.spec import ModelSpec


@pytest.mark.parametrize("backbone", ["small-cnn", "small-resnet", "resnet18"])
def test_weights_depend_on_the_seed_alone(backbone):
    spec = ModelSpec(backbone=backbone)
    torch.manual_seed(1)
    first = read_weights(spec.build(channels=1, class_count=3, seed=7))
    torch.manual_seed(2)
    assert same_bits(read_weights(spec.build(channels=1, class_count=3, seed=7)), first)
    other = read_weights(spec.build(channels=1, class_count=3, seed=8))
    for name in ("head.weight", "backbone.conv1.weight"):
        assert not torch.equal(other[name], first[name])


def test_building_leaves_the_global_generator_unchanged():
    before = torch.get_rng_state()
    ModelSpec().build(channels=1, class_count=3, seed=0)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_head_does_not_depend_on_the_backbone_before_it():
    heads = [
        ModelSpec(backbone=name).build(channels=channels, class_count=4, seed=3).head
        for name, channels in (("mlp", 6), ("small-resnet", 1))  # both give 128 features
    ]
    assert torch.equal(heads[0].weight, heads[1].weight)


def test_head_starts_with_zero_bias_and_weights_inside_the_bound():
    head = build_head(16, 500, seed=0)
    assert not head.bias.any()
    # Uniform in +-1/sqrt(16): mean 0, standard deviation 0.25/sqrt(3) = 0.1443; 8000 draws.
    assert head.weight.abs().max() <= 0.25
    assert head.weight.std().item() == pytest.approx(0.1443, rel=0.03)
    assert head.weight.requires_grad


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mean": (0.1, 0.2)}, "model.mean has 2 values for images of 3 channels; give 1 or 3"),
        ({"std": (0.1, 0.2, 0.3, 0.4)}, "model.std has 4 values"),
        ({"std": (0.5, 0.0, 0.5)}, "model.std must be positive"),
    ],
)
def test_normalisation_must_fit_the_channels(settings, message):
    with pytest.raises(UserError, match=message):
        ModelSpec(**settings).build(channels=3, class_count=2, seed=0)
