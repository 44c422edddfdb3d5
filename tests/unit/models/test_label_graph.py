from __future__ import annotations

import torch
from torch import tensor

from fedquilt.models.heads.layers.label_graph import LabelGraph, label_adjacency


def test_adjacency_of_two_labels():
    # P = [[1, 2/4], [2/3, 1]], row sums 1.5 and 1.6667; P^T is scaled by the roots of both.
    found = label_adjacency(tensor([[4.0, 2.0], [2.0, 3.0]]))
    expected = tensor([[0.66667, 0.42164], [0.31623, 0.6]])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_labels_that_never_co_occur_have_no_neighbours():
    assert torch.equal(label_adjacency(torch.diag(tensor([3.0, 5.0]))), torch.eye(2))
    assert torch.equal(label_adjacency(torch.zeros(4, 3, 3)), torch.eye(3).expand(4, 3, 3))


def test_a_class_never_seen_has_no_neighbours_and_no_nan():
    matrices = tensor([[4.0, 2.0, 0.0], [2.0, 3.0, 0.0], [0.0, 0.0, 0.0]])
    found = label_adjacency(matrices)
    assert found[2].tolist() == [0.0, 0.0, 1.0]
    assert found[:, 2].tolist() == [0.0, 0.0, 1.0]
    assert torch.equal(found[:2, :2], label_adjacency(matrices[:2, :2]))


def test_scale_does_not_matter():
    matrices = tensor([[[4.0, 2.0], [2.0, 3.0]]])
    torch.testing.assert_close(label_adjacency(matrices / 7), label_adjacency(matrices))


def test_two_convolutions_with_a_leaky_relu_between_them():
    graph = LabelGraph(1, 1)
    with torch.no_grad():
        graph.first.weight.fill_(1.0)
        graph.second.weight.fill_(2.0)
    adjacency = tensor([[[0.5, 0.5], [0.0, 1.0]]])
    # (3, -4): first (-0.5, -4), leaky 0.2 of each: (-0.1, -0.8); times 2: (-0.2, -1.6);
    # second (0.5 * -0.2 + 0.5 * -1.6, -1.6) = (-0.9, -1.6).
    found = graph(tensor([[[3.0], [-4.0]]]), adjacency)
    torch.testing.assert_close(found, tensor([[[-0.9], [-1.6]]]))


def test_each_image_has_its_own_adjacency():
    graph = LabelGraph(2, 3)
    nodes = torch.rand(1, 2, 2).expand(2, 2, 2)
    adjacency = torch.stack([torch.eye(2), torch.full((2, 2), 0.5)])
    alone, mixed = graph(nodes, adjacency)
    assert torch.equal(alone, graph(nodes[:1], adjacency[:1])[0])
    assert torch.allclose(mixed[0], mixed[1])
    assert not torch.allclose(alone[0], alone[1])
