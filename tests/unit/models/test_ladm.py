"""The label-aware head: attention of class queries over a feature map."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedquilt.core.errors import UserError
from fedquilt.core.tree import same_bits
from fedquilt.models.heads.ladm import LADMHead, attention_maps, build_ladm_head
from fedquilt.models.heads.layers.cross_attention import CrossAttention
from fedquilt.models.heads.layers.etf import simplex_etf
from fedquilt.models.network import Network, layout_of, read_weights, write_weights
from fedquilt.models.spec import ModelSpec

FEATURES, CLASSES = 16, 3


def make_head(**settings: object) -> LADMHead:
    torch.manual_seed(0)
    return build_ladm_head(FEATURES, CLASSES, 0, **settings)  # type: ignore[arg-type]


def make_map(height: int = 4, width: int = 5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, FEATURES, height, width, generator=generator)


def build(backbone: str = "small-cnn", **settings: object) -> Network:
    spec = ModelSpec(backbone=backbone, head="ladm", head_settings=settings)  # type: ignore[arg-type]
    return spec.build(channels=1, class_count=CLASSES, seed=5)


def as_torch(attention: CrossAttention) -> nn.MultiheadAttention:
    """torch's attention with the same weights."""
    theirs = nn.MultiheadAttention(FEATURES, 4, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat((attention.query.weight, attention.key_value.weight)))
        theirs.in_proj_bias.copy_(torch.cat((attention.query.bias, attention.key_value.bias)))
        theirs.out_proj.load_state_dict(attention.out.state_dict())
    return theirs


def test_it_equals_standard_four_head_attention():
    head = make_head()
    for layer in (head.attention.query, head.attention.key_value, head.attention.out):
        nn.init.normal_(layer.bias)
    features = make_map()
    tokens = (features + head.position_code(features)).flatten(2).mT
    queries = head.query.expand(2, -1, -1)
    expected, weights = as_torch(head.attention)(queries, tokens, tokens)
    output = head(features)
    assert torch.allclose(output.per_class, expected, atol=1e-5)
    assert torch.allclose(head.attention_maps(features), weights.unflatten(-1, (4, 5)), atol=1e-6)
    # the logit of a class is its feature times its direction
    own = (expected @ simplex_etf(FEATURES, CLASSES).T).diagonal(dim1=1, dim2=2)
    assert torch.allclose(output.logits, own, atol=1e-5)
    assert torch.allclose(output.features, features.mean((2, 3)))


def test_the_initialisation_is_that_of_torch():
    torch.manual_seed(0)
    attention = CrossAttention(64, 4)
    # bounds: sqrt(6 / (64 + 192)) = 0.153093 for inputs, 1 / sqrt(64) = 0.125 for the output
    for layer, bound in (("query", 0.153093), ("key_value", 0.153093), ("out", 0.125)):
        weight = getattr(attention, layer).weight
        assert 0.99 * bound < float(weight.detach().abs().max()) <= bound + 1e-6
        assert not getattr(attention, layer).bias.any()


def test_the_order_of_tokens_matters_only_with_a_position_encoding():
    features = make_map()
    shuffled = features.flatten(2)[:, :, torch.randperm(20)].unflatten(2, (4, 5))
    blind, placed = make_head(position_code=False), make_head(position_code=True)
    assert torch.allclose(blind(features).per_class, blind(shuffled).per_class, atol=1e-6)
    assert not torch.allclose(placed(features).per_class, placed(shuffled).per_class, atol=1e-3)


@pytest.mark.parametrize("query", ["etf", "random"])
@pytest.mark.parametrize("classifier", ["etf", "random"])
@pytest.mark.parametrize("trained", [False, True])
def test_queries_and_directions_are_fixed_or_trained(query, classifier, trained):
    network = build(
        query=query, classifier=classifier, train_query=trained, train_classifier=trained
    )
    network(torch.rand(4, 1, 8, 8)).logits.square().sum().backward()
    names = {"head.query": query, "head.classifier.rows": classifier}
    layout = layout_of(network, CLASSES)
    for name, start in names.items():
        entry = network.get_parameter(name) if trained else network.get_buffer(name)
        assert (entry.grad is not None) == trained
        assert (name in layout.head) == trained
        assert (name in layout.buffers) == (not trained and start == "random")
        assert torch.equal(entry, simplex_etf(64, CLASSES)) == (start == "etf")


def test_random_queries_depend_on_the_seed_and_are_stored():
    settings = {"query": "random"}
    spec = ModelSpec(head="ladm", head_settings=settings)
    first, again, other = (
        spec.build(channels=1, class_count=CLASSES, seed=seed) for seed in (1, 1, 2)
    )
    assert same_bits(read_weights(first), read_weights(again))
    assert not torch.equal(first.head.query, other.head.query)
    write_weights(other, read_weights(first))  # as when a model is loaded
    images = torch.rand(2, 1, 8, 8)
    assert torch.equal(other(images).logits, first(images).logits)


def test_the_logits_use_factor_and_bias():
    plain, adjusted = build(), build(scale=10.0, bias=True)
    images = torch.rand(3, 1, 8, 8)
    with torch.no_grad():
        adjusted.head.classifier.bias.fill_(0.5)
        assert torch.allclose(adjusted(images).logits, 10 * plain(images).logits + 0.5, atol=1e-5)
    layout = layout_of(adjusted, CLASSES)
    assert layout.head == ("head.classifier.bias",)
    assert "head.classifier.scale" in layout.body


def test_all_class_scores_have_the_logits_on_their_diagonal():
    network = build(scale=2.0, bias=True)
    output = network(torch.rand(3, 1, 8, 8))
    scores = network.head.classifier(output.per_class)
    assert scores.shape == (3, CLASSES, CLASSES)
    assert torch.allclose(scores.diagonal(dim1=1, dim2=2), output.logits, atol=1e-6)


@pytest.mark.parametrize(
    ("backbone", "width", "side", "grid"),
    [
        ("small-cnn", 64, 16, (8, 8)),
        ("small-resnet", 128, 16, (2, 2)),
        ("resnet18", 512, 64, (2, 2)),
        ("vit_tiny_patch16_224", 192, 224, (14, 14)),  # tokens after a class token
    ],
)
def test_every_backbone_with_a_feature_map_is_supported(backbone, width, side, grid):
    network = build(backbone).eval()
    images = torch.rand(2, 1, side, side)
    with torch.no_grad():
        output = network(images)
    assert output.per_class.shape == (2, CLASSES, width)
    maps = attention_maps(network, images)
    assert maps.shape == (2, CLASSES, *grid)
    assert torch.allclose(maps.sum((2, 3)), torch.ones(2, CLASSES), atol=1e-5)
    assert not maps.requires_grad


def test_attention_finds_the_position_that_matches_the_query():
    """Identity projections, and one token along each class's query."""
    head = build_ladm_head(8, 2, 0, position_code=False)
    with torch.no_grad():
        head.attention.query.weight.copy_(50 * torch.eye(8))
        head.attention.key_value.weight.copy_(torch.eye(8).repeat(2, 1))
        head.attention.out.weight.copy_(torch.eye(8))
    features = torch.zeros(1, 8, 2, 3)
    features[0, :, 0, 1], features[0, :, 1, 2] = head.query[0], head.query[1]
    maps = head.attention_maps(features)[0]
    assert maps[0].argmax() == 1  # row 0, column 1
    assert maps[1].argmax() == 5  # row 1, column 2


def test_other_heads_have_no_attention_maps():
    network = ModelSpec().build(channels=1, class_count=2, seed=0)
    with pytest.raises(UserError, match=r"only the head 'ladm' has attention maps .* found Linear"):
        attention_maps(network, torch.rand(1, 1, 8, 8))


@pytest.mark.parametrize(
    ("shape", "settings", "message"),
    [
        ((6, 3), {}, "divisible by its 4 heads, found 6"),
        ((8, 1), {}, "at least two classes, found 1"),
        ((8, 9), {}, "found 8 features and 9 classes"),
        ((8, 3), {"query": "ranodm"}, "did you mean 'random'?"),
        ((8, 3), {"classifier": "linear"}, "class vectors cannot start as 'linear'"),
    ],
)
def test_invalid_settings_are_refused(shape, settings, message):
    with pytest.raises(UserError) as caught:
        build_ladm_head(*shape, 0, **settings)
    assert message in str(caught.value)


def test_one_class_works_without_an_etf():
    head = build_ladm_head(8, 1, 0, query="random", classifier="random")
    assert head(torch.rand(2, 8, 2, 2)).logits.shape == (2, 1)


def test_a_backbone_without_a_feature_map_is_refused():
    network = ModelSpec(backbone="mlp", head="ladm").build(channels=4, class_count=3, seed=0)
    with pytest.raises(UserError, match="has no feature map"):
        network(torch.rand(2, 4, 1, 1))
