from __future__ import annotations

import torch
from torch import tensor

from fedquilt.models.heads.layers.edge_graph import EdgeConvolution, EdgeGraph, edge_rates


def seeded(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


def test_rates_of_two_labels():
    # Labels (1,1), (1,0), (0,0), (0,1), (1,1): both 2 of 5, neither 1, one alone 1 each.
    labels = tensor([[1, 1], [1, 0], [0, 0], [0, 1], [1, 1]], dtype=torch.uint8)
    rates = edge_rates(labels, torch.ones(5, 2, dtype=torch.bool))
    torch.testing.assert_close(rates[0, 1], tensor([0.4, 0.2, 0.2, 0.2]))
    # A label with itself: present in 3 of 5, absent in 2.
    torch.testing.assert_close(rates[0, 0], tensor([0.6, 0.4, 0.0, 0.0]))


def test_rates_sum_to_1_and_are_symmetric():
    labels = (seeded(50, 6) < 0.3).to(torch.uint8)
    both, neither, first, second = edge_rates(labels, seeded(50, 6) < 2).unbind(2)
    torch.testing.assert_close(both + neither + first + second, torch.ones(6, 6))
    assert torch.equal(both, both.T)
    assert torch.equal(neither, neither.T)
    assert torch.equal(first, second.T)
    assert not torch.equal(first, second)


def test_only_annotated_pairs_count():
    labels = tensor([[1, 1, 9], [0, 1, 9], [7, 1, 9]], dtype=torch.uint8)
    known = tensor([[True, True, False], [True, True, False], [False, True, False]])
    rates = edge_rates(labels, known)
    assert rates[0, 1].tolist() == [0.5, 0.0, 0.0, 0.5]  # two images; only the second once
    assert rates[1, 0].tolist() == [0.5, 0.0, 0.5, 0.0]
    assert not rates[2].any()  # class 2 is not annotated: zeros, not NaN
    assert not rates[:, 2].any()


def test_convolution_equals_a_loop_over_edges():
    layer, nodes, edges = EdgeConvolution(3, 2, bias=True), seeded(4, 5, 3), seeded(5, 5, 4)
    found = layer(nodes, edges)
    assert found.shape == (4, 5, 2)
    for image in range(4):
        for target in range(5):
            received = torch.zeros(2)
            for source in range(5):
                if source != target:
                    matrix = torch.tanh(layer.edge(edges[source, target])).reshape(3, 2)
                    received += nodes[image, source] @ matrix / 4
            expected = received + layer.root(nodes[image, target])
            torch.testing.assert_close(found[image, target], expected)


def test_fourteen_classes_have_182_edges():
    """Count the edges that carry messages, without the projection of the class itself."""
    layer = EdgeConvolution(2, 1, bias=True)
    torch.nn.init.zeros_(layer.root.weight)
    edges = 0
    for source in range(14):
        nodes = torch.zeros(1, 14, 2)
        nodes[0, source] = 1.0
        changed = layer(nodes, seeded(14, 14, 4))[0, :, 0] != layer.root.bias
        assert not changed[source]
        edges += int(changed.sum())
    assert edges == 182


def test_images_are_independent():
    graph = EdgeGraph(4).eval()
    edges, nodes = seeded(3, 3, 4), seeded(2, 3, 4)
    before = graph(nodes, edges)
    assert before.shape == (2, 3)
    changed = torch.stack([nodes[0] + 5, nodes[1]])
    after = graph(changed, edges)
    assert torch.equal(after[1], before[1])
    assert not torch.allclose(after[0], before[0])
    torch.testing.assert_close(graph(nodes[1:], edges), before[1:])


def test_the_graph_is_two_residual_blocks_and_a_convolution_to_a_logit():
    graph, edges, nodes = EdgeGraph(4), seeded(3, 3, 4), seeded(5, 3, 4)
    found = graph(nodes, edges)
    hidden = nodes
    for block in (graph.first, graph.second):
        output = block.convolution(hidden, edges).reshape(15, 4)  # the nodes of all images
        spread = output.var(0, unbiased=False)
        normed = (output - output.mean(0)) / (spread + block.norm.eps).sqrt()
        hidden = hidden + normed.clamp(min=0).reshape(5, 3, 4)
    torch.testing.assert_close(found, graph.output(hidden, edges)[:, :, 0])


def test_the_output_depends_on_edges_and_a_single_class_has_none():
    graph, nodes = EdgeGraph(4).eval(), seeded(2, 3, 4)
    assert not torch.allclose(graph(nodes, seeded(3, 3, 4)), graph(nodes, torch.zeros(3, 3, 4)))
    alone = graph(nodes[:, :1], torch.zeros(1, 1, 4))
    assert bool(alone.isfinite().all())


def test_parameter_count_for_features_of_512():
    # Two blocks of (4 + 1) * 512^2 + 512^2 + 2 * 512, an output of 5 * 512 + 513.
    count = sum(parameter.numel() for parameter in EdgeGraph(512).parameters())
    assert count == 2 * (6 * 512**2 + 2 * 512) + 5 * 512 + 513 == 3_150_849


def test_the_public_code_compares_images():
    # Three classes, four images; images 0, 1 and 2 stand for the classes. Images 0 and 1 share
    # class 0 and lack class 2, and only image 0 has class 1.
    labels = tensor([[1, 1, 0], [1, 0, 0], [0, 0, 1], [1, 1, 1]], dtype=torch.uint8)
    known = torch.ones(4, 3, dtype=torch.bool)
    rates = edge_rates(labels, known, of_images=True)
    assert rates[0, 1].tolist() == [0.25, 0.25, 0.25, 0.0]
    assert rates[1, 0].tolist() == [0.25, 0.25, 0.0, 0.25]
    assert rates[0, 2].tolist() == [0.0, 0.0, 0.5, 0.25]
    few = edge_rates(labels[:2], known[:2], of_images=True)  # a site of fewer images than classes
    assert few.shape == (3, 3, 4)
    assert not few[2].any()
    assert few[0, 1].tolist() == [0.5, 0.5, 0.5, 0.0]
