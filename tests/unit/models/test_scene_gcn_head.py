from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, tensor

from fedquilt.core.errors import UserError
from fedquilt.models.heads.layers.label_graph import label_adjacency
from fedquilt.models.heads.scene_gcn import SceneGCNHead, build_scene_gcn, label_vectors
from fedquilt.models.network import Network, layout_of, read_weights, write_weights
from fedquilt.models.spec import ModelSpec

SETTINGS = {"scene_count": 2, "width": 8}
NAMES = ("cat", "dog", "catfish")


def build(scenes: str = "k-means", seed: int = 0) -> Network:
    spec = ModelSpec(head="scene-gcn", head_settings={**SETTINGS, "scenes": scenes})
    return spec.build(channels=1, class_count=3, seed=seed, class_names=NAMES)


def head(features: int = 2) -> SceneGCNHead:
    """Two scenes with centres (0, 0) and (10, 0)."""
    torch.manual_seed(0)
    made = build_scene_gcn(features, 3, 0, class_names=NAMES, **SETTINGS)
    made.centres[1, 0] = 10.0
    return made


def maps(*contexts: tuple[float, float]) -> Tensor:
    """Feature maps of 1 x 2 positions whose mean is the context."""
    spread = tensor([[-1.0, 1.0], [0.0, 0.0]])[:, None]  # (d, 1, 2)
    return tensor(contexts)[:, :, None, None] + spread


def test_training_counts_labels_in_the_images_scene():
    made = head()
    present = tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    made(maps((1.0, 0.0), (9.0, 0.0), (3.0, 0.0)), present)
    assert made.counts.tolist() == [2.0, 1.0]
    # scene 0: images 0 and 2, y y^T of (1, 1, 0) plus that of (1, 0, 0)
    assert made.matrices[0].tolist() == [[2.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    assert made.matrices[1].tolist() == [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    assert made.centres.tolist() == [[2.0, 0.0], [9.0, 0.0]]  # replaced by the first images


def test_counts_add_up_to_the_images_and_matrices_stay_symmetric():
    made, generator = head(), torch.Generator().manual_seed(0)
    for _ in range(5):
        contexts = 10 * torch.rand(7, 2, generator=generator)
        present = (torch.rand(7, 3, generator=generator) < 0.5).float()
        made(contexts[:, :, None, None], present)
    assert made.counts.sum().item() == 35
    assert torch.equal(made.matrices, made.matrices.transpose(1, 2))
    assert bool((made.matrices >= 0).all())
    assert not made.centres.requires_grad


def test_a_step_uses_the_counts_of_its_own_batch():
    made, again = head(), head()
    again.load_state_dict(made.state_dict())
    present = tensor([[1.0, 1.0, 0.0]])
    first = made(maps((1.0, 0.0)), present).logits
    again.matrices[0] += present.T @ present
    assert torch.equal(again.eval()(maps((1.0, 0.0))).logits, first)


@pytest.mark.parametrize("is_training", [True, False])
def test_nothing_is_counted_without_labels_or_in_evaluation(is_training: bool):
    made = head().train(is_training)
    before = {name: value.clone() for name, value in made.named_buffers()}
    given = () if is_training else (torch.ones(1, 3),)
    made(maps((1.0, 0.0)), *given)
    assert all(torch.equal(value, before[name]) for name, value in made.named_buffers())


def test_logits_by_the_formula_class_by_class():
    """tanh of a layer on the label feature and the graph's output, then the class's row."""
    made = head().eval()
    made.matrices[:] = tensor([[4.0, 2.0, 0.0], [2.0, 3.0, 1.0], [0.0, 1.0, 5.0]])
    with torch.no_grad():
        made.bias.copy_(tensor([0.5, -1.0, 2.0]))
    images = maps((1.0, 0.0), (9.0, 4.0))
    output = made(images)
    own = made.attention(images.flatten(2).mT, made.labels)
    related = made.graph(own, label_adjacency(made.matrices))
    weight, shift = made.join.weight, made.join.bias
    for image in range(2):
        for column in range(3):
            both = torch.cat([own[image, column], related[image, column]])
            logit = torch.tanh(weight @ both + shift) @ made.weight[column] + made.bias[column]
            torch.testing.assert_close(output.logits[image, column], logit)
    torch.testing.assert_close(output.features, tensor([[1.0, 0.0], [9.0, 4.0]]))
    torch.testing.assert_close(output.per_class, own)


def test_each_image_uses_the_graph_of_its_own_scene():
    made = head().eval()
    plain = made(maps((1.0, 0.0), (9.0, 0.0))).logits
    made.matrices[1] += torch.ones(3, 3)  # all labels always together, in scene 1 only
    related = made(maps((1.0, 0.0), (9.0, 0.0))).logits
    assert torch.equal(plain[0], related[0])
    assert not torch.allclose(plain[1], related[1])
    torch.testing.assert_close(label_adjacency(made.matrices)[1], torch.full((3, 3), 1 / 3))


def test_a_single_image_can_be_trained_on():
    made = head()
    output = made(maps((1.0, 0.0)), torch.ones(1, 3))
    assert (output.features.shape, output.logits.shape) == ((1, 2), (1, 3))
    assert output.per_class is not None
    assert output.per_class.shape == (1, 3, 2)
    output.logits.sum().backward()
    assert all(parameter.grad is not None for parameter in made.parameters())


def test_scenes_and_label_vectors_are_stored_with_the_weights():
    network = build().train()
    images = torch.rand(5, 1, 8, 8)
    network(images, torch.ones(5, 3))
    weights = read_weights(network)
    other = build(seed=5)
    write_weights(other, weights)
    assert torch.equal(other.eval()(images).logits, network.eval()(images).logits)
    output = torch.func.functional_call(build(seed=6).eval(), weights, (images,))
    assert torch.equal(output.logits, network(images).logits)


def test_layout_of_the_head():
    layout = layout_of(build(), 3)
    assert layout.head == ("head.weight", "head.bias")
    scenes = ("head.labels", "head.matrices", "head.counts", "head.centres")
    assert layout.buffers == scenes
    linear = layout_of(build("linear"), 3)
    assert linear.buffers == scenes[:3]
    assert "head.scores.weight" in linear.body


def test_learnt_scenes_have_the_highest_score():
    made = build_scene_gcn(2, 3, 0, class_names=NAMES, scenes="linear", **SETTINGS)
    with torch.no_grad():
        made.scores.weight.copy_(tensor([[1.0, 0.0], [0.0, 1.0]]))
    contexts = tensor([[3.0, 1.0], [1.0, 2.0]])
    assert made.scene_of(contexts).tolist() == [0, 1]
    assert made.scene_scores(contexts).tolist() == contexts.tolist()
    made(contexts[:, :, None, None], torch.ones(2, 3))
    assert made.counts.tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match="centres, not scores"):
        head().scene_scores(contexts)


def test_label_vectors_by_spelling_and_from_a_file(tmp_path: Path):
    vectors = label_vectors("hashed-names", NAMES)
    assert vectors.shape == (3, 300)
    cosine = torch.nn.functional.normalize(vectors, dim=1)
    assert cosine[0] @ cosine[2] > cosine[0] @ cosine[1] + 0.1  # cat and catfish share letters
    words = {name: np.random.default_rng(len(name)).normal(size=300) for name in NAMES}
    np.savez(tmp_path / "glove.npz", **words)
    stored = label_vectors(str(tmp_path / "glove.npz"), NAMES)
    expected = torch.tensor(words["dog"], dtype=torch.float32)
    assert torch.nn.functional.cosine_similarity(stored[1], expected, dim=0) > 1 - 1e-5
    with pytest.raises(UserError, match="has no vector for 'cow'"):
        label_vectors(str(tmp_path / "glove.npz"), ("cow",))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scenes": "kmeans"}, "no scenes by 'kmeans'; did you mean 'k-means'"),
        ({"scene_count": 0}, "scene_count and width of at least 1, found 0 and 8"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, object], message: str):
    with pytest.raises(UserError, match=message):
        build_scene_gcn(2, 3, 0, class_names=NAMES, **{**SETTINGS, **settings})
