from __future__ import annotations

import pytest
import torch
from torch import nn, tensor

from fedquilt.core.errors import UserError
from fedquilt.core.tree import same_bits
from fedquilt.losses.label_states import NEGATIVE, POSITIVE, UNKNOWN
from fedquilt.models.class_names.text_vectors import text_vectors
from fedquilt.models.heads.c_tran import CTranHead, build_c_tran
from fedquilt.models.network import layout_of, read_weights, write_weights
from fedquilt.models.spec import ModelSpec

NAMES = ("Cardiomegaly", "Edema", "Pleural Effusion", "Nodule", "Mass")
WIDTH = 8
TABLES = ("head.labels", "head.negative", "head.positive")


def make_head(names: tuple[str, ...] = NAMES, seed: int = 0, **settings: object) -> CTranHead:
    torch.manual_seed(seed)
    options = {"text_encoder": "hashed-names", "class_names": names} | settings
    return build_c_tran(WIDTH, len(names), seed, **options).eval()  # type: ignore[arg-type]


def make_map(count: int = 3) -> torch.Tensor:
    return torch.randn(count, WIDTH, 2, 3, generator=torch.Generator().manual_seed(5))


def make_states() -> torch.Tensor:
    return torch.randint(-1, 2, (3, 5), generator=torch.Generator().manual_seed(6))


def test_the_token_of_an_unknown_label_is_its_vector():
    head = make_head()
    unknown = torch.full((3, 5), UNKNOWN)
    assert torch.equal(head.label_tokens(3, unknown), head.labels.expand(3, -1, -1))
    assert torch.equal(head.label_tokens(3, None), head.label_tokens(3, unknown))
    assert torch.equal(head(make_map()).logits, head(make_map(), unknown).logits)


def test_a_state_adds_its_vector():
    head = make_head()
    tokens = head.label_tokens(1, tensor([[NEGATIVE, POSITIVE, UNKNOWN, NEGATIVE, POSITIVE]]))[0]
    added = tokens - head.labels
    for row, expected in ((0, head.negative), (1, head.positive), (3, head.negative)):
        torch.testing.assert_close(added[row], expected)
    assert not torch.equal(head.negative, head.positive)


def test_a_revealed_label_changes_the_others():
    head = make_head()
    states = torch.full((3, 5), UNKNOWN)
    states[:, 0] = POSITIVE
    gap = head(make_map(), states).logits - head(make_map()).logits
    assert bool((gap[:, 1:].abs() > 1e-4).all())


def test_labels_have_no_order():
    """Vectors, rows and states permuted together permute the logits."""
    head, order = make_head(), tensor([3, 0, 4, 1, 2])
    permuted = make_head(tuple(NAMES[index] for index in order.tolist()))
    with torch.no_grad():
        permuted.output.weight.copy_(head.output.weight[order])
        permuted.output.bias.copy_(head.output.bias[order])
    found = permuted(make_map(), make_states()[:, order])
    expected = head(make_map(), make_states())
    torch.testing.assert_close(found.logits, expected.logits[:, order])
    torch.testing.assert_close(found.per_class, expected.per_class[:, order])
    assert not torch.allclose(expected.logits, expected.logits[:, order], atol=1e-3)


def test_positions_have_no_order():
    head = make_head()
    mirrored = head(make_map().flip(3), make_states()).logits
    torch.testing.assert_close(mirrored, head(make_map(), make_states()).logits)


def test_the_output_equals_torch_layers():
    """LayerNorm, post-norm layers with 4 heads and a hidden width of d, then each label's row."""
    head = make_head()
    features = make_map()
    tokens = torch.cat([features.flatten(2).mT, head.label_tokens(3, make_states())], 1)
    hidden = nn.functional.layer_norm(tokens, (WIDTH,))
    for layer in head.layers:
        mixed, _ = layer.self_attn(hidden, hidden, hidden)
        hidden = layer.norm1(hidden + mixed)
        hidden = layer.norm2(hidden + layer.linear2(torch.relu(layer.linear1(hidden))))
    output = head(features, make_states())
    torch.testing.assert_close(output.per_class, hidden[:, 6:])
    logits = head.output(hidden[:, 6:]).diagonal(dim1=1, dim2=2)  # class c of token c
    torch.testing.assert_close(output.logits, logits)
    torch.testing.assert_close(output.features, features.mean((2, 3)))
    assert len(head.layers) == 3
    assert head.layers[0].linear1.weight.shape == (WIDTH, WIDTH)
    assert head.layers[0].self_attn.num_heads == 4
    assert head.layers[0].dropout.p == 0.1


def test_dropout_acts_in_training_only():
    head = make_head(dropout=0.5).train()
    assert not torch.equal(head(make_map()).logits, head(make_map()).logits)
    head.eval()
    assert torch.equal(head(make_map()).logits, head(make_map()).logits)


def test_text_vectors_of_the_names_are_fixed():
    network = build({"text_encoder": "hashed-names"}, NAMES)
    expected = text_vectors("hashed-names", NAMES, "{name}", 64)
    assert torch.equal(network.head.labels, expected[:5])
    assert torch.equal(network.head.negative, expected[5])
    assert torch.equal(network.head.positive, expected[6])
    layout = layout_of(network, 5)
    assert layout.buffers == TABLES
    assert layout.head == ("head.output.weight", "head.output.bias")
    network(torch.rand(2, 1, 8, 8), torch.ones(2, 5)).logits.sum().backward()
    assert network.head.labels.grad is None


def test_swapped_states_swap_the_words():
    right, swapped = make_head(), make_head(swapped_states=True)
    assert torch.equal(right.negative, swapped.positive)
    assert torch.equal(right.positive, swapped.negative)
    assert torch.equal(right.labels, swapped.labels)


@pytest.mark.parametrize("class_names", [NAMES, ()])
def test_vectors_are_learnt_on_request_or_without_names(class_names: tuple[str, ...]):
    encoder = "learned" if class_names else "hashed-names"
    torch.manual_seed(0)
    head = build_c_tran(16, 5, 0, text_encoder=encoder, class_names=class_names)
    learnt = {name for name, parameter in head.named_parameters() if parameter.requires_grad}
    assert {"labels", "negative", "positive"} <= learnt
    assert not list(head.buffers())
    assert head.labels.shape == (5, 16)
    assert 0.2 < head.labels.abs().max() <= 0.25  # 1 / sqrt(16)
    head(torch.randn(2, 16, 2, 2), torch.ones(2, 5)).logits.sum().backward()
    assert bool(head.labels.grad.any())
    assert bool(head.positive.grad.any())
    assert not head.negative.grad.any()  # no label is negative


def test_learnt_label_vectors_are_head_rows_and_state_vectors_are_not():
    layout = layout_of(build({}, NAMES[:2]), 2)  # as many classes as states
    assert set(layout.head) == {"head.labels", "head.output.weight", "head.output.bias"}
    assert {"head.negative", "head.positive"} <= set(layout.body)


def build(settings: dict[str, object], names: tuple[str, ...], seed: int = 1) -> nn.Module:
    spec = ModelSpec(head="c-tran", head_settings=settings)  # type: ignore[arg-type]
    return spec.build(channels=1, class_count=len(names), seed=seed, class_names=names)


def test_layers_depend_on_the_seed_and_vectors_on_the_names():
    one, same, other = (build({"text_encoder": "hashed-names"}, NAMES, seed) for seed in (1, 1, 2))
    assert same_bits(read_weights(one), read_weights(same))
    for name in ("layers.0.self_attn.in_proj_weight", "output.weight"):
        assert not torch.equal(one.head.state_dict()[name], other.head.state_dict()[name])
    assert torch.equal(one.head.labels, other.head.labels)


def test_a_model_is_loaded_without_its_encoder():
    spec = ModelSpec(
        weights="nowhere.safetensors",
        head="c-tran",
        head_settings={"text_encoder": "gone.npz", "swapped_states": True, "layers": 1},
    )
    settings = spec.for_loading()
    assert settings.weights == "random"
    assert settings.head_settings == {**spec.head_settings, "text_encoder": "stored"}
    trained = build({"text_encoder": "hashed-names", "layers": 1}, NAMES)
    empty = settings.build(channels=1, class_count=5, seed=9, class_names=NAMES)
    assert not empty.head.labels.any()
    write_weights(empty, read_weights(trained))
    images = torch.rand(2, 1, 8, 8)
    assert torch.equal(empty.eval()(images).logits, trained.eval()(images).logits)
    learned = ModelSpec(head="c-tran", head_settings={"text_encoder": "learned"})
    assert learned.for_loading() == learned
    assert ModelSpec().for_loading() == ModelSpec()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attention_heads": 5}, "8 is not a multiple of 5"),
        ({"layers": 0}, "layers and attention_heads of at least 1"),
        ({"dropout": 1.0}, r"dropout in \[0, 1\)"),
        ({"prompt": "a photo"}, "the prompt must contain {name}"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, object], message: str):
    with pytest.raises(UserError, match=message):
        make_head(**settings)
