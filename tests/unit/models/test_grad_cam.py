"""Grad-CAM by hand, on a picture whose answer is known, and with the weights thrown away."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedquilt.core.errors import UserError
from fedquilt.models.grad_cam import grad_cam
from fedquilt.models.network import Network
from fedquilt.models.spec import ModelSpec


class Copies(nn.Module):
    """The image and its negative as a feature map of two channels, then the mean."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Conv2d(1, 2, 1, bias=False)
        self.map.weight.data = torch.tensor([1.0, -1.0]).view(2, 1, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        return self.map(images).mean((2, 3))  # type: ignore[no-any-return]


def test_a_position_counts_for_what_it_adds_to_the_logit():
    """Logit 0 is mean(x) * (2 - 1) + 5; logit 1 is mean(x) * (0 - 3): 16 positions share each."""
    head = nn.Linear(2, 2)
    head.weight.data = torch.tensor([[2.0, 1.0], [0.0, 3.0]])
    head.bias.data = torch.tensor([5.0, 0.0])
    images = torch.zeros(2, 1, 4, 4)
    images[0, 0, 0, 1], images[1, 0, 2, 3] = 8.0, -16.0
    maps = grad_cam(Network(Copies(), head).eval(), images)
    expected = torch.zeros(2, 2, 4, 4)
    expected[0, 0, 0, 1] = 8 * 1 / 16  # class 1 counts it as -8 * 3 / 16, which is cut off
    expected[1, 1, 2, 3] = 16 * 3 / 16
    assert torch.allclose(maps, expected)


@pytest.fixture(scope="module")
def trained() -> tuple[Network, Tensor, Tensor]:
    """A network that has learnt whether a bright or a dark square, or none, is on grey noise."""
    generator = torch.Generator().manual_seed(0)
    images = 0.1 * torch.randn(96, 1, 32, 32, generator=generator)
    corners = 4 * torch.randint(0, 7, (96, 2), generator=generator)
    labels = torch.arange(96) % 3
    for image, (top, left), label in zip(images, corners.tolist(), labels.tolist()):
        image[0, top : top + 8, left : left + 8] += (-1.0, 1.0, 0.0)[label]
    network = ModelSpec().build(channels=1, class_count=2, seed=0)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    targets = F.one_hot(labels, 3)[:, :2].float()
    for _ in range(40):
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(network(images).logits, targets).backward()
        optimizer.step()
    has_square = labels < 2
    return network.eval(), images[has_square], corners[has_square]


def own_maps(network: Network, images: Tensor) -> Tensor:
    """(N, 4, 4): the map of the class that each image has."""
    maps = grad_cam(network, images)
    return maps[torch.arange(len(images)), torch.arange(len(images)) % 2]


def share_at_square(maps: Tensor, corners: Tensor) -> float:
    """The mean share of a map's sum that lies where the square is; a tenth by chance."""
    shares = []
    for values, (top, left) in zip(maps, corners.tolist()):
        inside = torch.zeros(32, 32)
        inside[top : top + 8, left : left + 8] = 1
        cells = F.adaptive_avg_pool2d(inside[None], values.shape[0])[0] > 0
        shares.append(float(values[cells].sum() / values.sum().clamp(min=1e-9)))
    return sum(shares) / len(shares)


def test_the_map_finds_what_the_network_has_learnt(trained: tuple[Network, Tensor, Tensor]):
    network, images, corners = trained
    assert share_at_square(own_maps(network, images), corners) > 0.5


def test_randomised_weights_change_the_map(trained: tuple[Network, Tensor, Tensor]):
    """A map that stays the same without the training shows edges, not what was learnt."""
    network, images, _ = trained
    learnt = own_maps(network, images).flatten(1)
    fresh = ModelSpec().build(channels=1, class_count=2, seed=1).eval()
    random = own_maps(fresh, images).flatten(1)
    both = torch.stack([learnt, random]).argsort(-1).argsort(-1).float()  # ranks
    similarity = F.cosine_similarity(*(each - each.mean(-1, keepdim=True) for each in both), dim=-1)
    assert similarity.mean() < 0.5
    other_head = Network(network.backbone, fresh.head).eval()
    changed = own_maps(other_head, images).flatten(1)
    assert not torch.allclose(learnt, changed, atol=0.05)


def test_no_weight_and_no_gradient_is_changed(trained: tuple[Network, Tensor, Tensor]):
    network, images, _ = trained
    before = [each.clone() for each in network.state_dict().values()]
    network.zero_grad()
    with torch.no_grad():  # as in prediction
        grad_cam(network, images[:2])
    assert all(map(torch.equal, before, network.state_dict().values()))
    assert all(each.grad is None for each in network.parameters())


@pytest.mark.parametrize(
    ("backbone", "size", "side"),
    [("resnet18", 64, 4), ("small-cnn", 16, 8), ("tf_efficientnet_lite0", 128, 4)],
)
def test_deepest_map_of_four_positions_or_more(backbone: str, size: int, side: int):
    network = ModelSpec(backbone=backbone).build(channels=3, class_count=2, seed=0).eval()
    assert grad_cam(network, torch.randn(1, 3, size, size)).shape == (1, 2, side, side)


@pytest.mark.parametrize("head", ["hidden-layer", "cosine", "ladm", "softmax"])
def test_other_heads_have_maps_too(head: str):
    network = ModelSpec(head=head).build(channels=1, class_count=3, seed=0).eval()
    maps = grad_cam(network, torch.randn(2, 1, 16, 16))
    assert maps.shape == (2, 3, 8, 8)
    assert maps.max() > 0


@pytest.mark.parametrize(("backbone", "size"), [("vit_tiny_patch16_224", 224), ("mlp", 1)])
def test_networks_without_a_map_are_refused(backbone: str, size: int):
    network = ModelSpec(backbone=backbone).build(channels=3, class_count=2, seed=0).eval()
    with pytest.raises(UserError, match="predict without --explain"):
        grad_cam(network, torch.randn(1, 3, size, size))
