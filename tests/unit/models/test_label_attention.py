from __future__ import annotations

import torch

from fedquilt.models.heads.layers.label_attention import LabelAttention


def test_against_the_formula_position_by_position():
    generator = torch.Generator().manual_seed(0)
    attention = LabelAttention(feature_count=3, label_width=2, width=4)
    tokens = torch.randn(2, 5, 3, generator=generator)
    labels = torch.randn(6, 2, generator=generator)
    found = attention(tokens, labels)
    assert found.shape == (2, 6, 3)
    for image in range(2):
        for label in range(6):
            scores = []
            for position in tokens[image]:
                joint = torch.tanh(
                    (attention.places.weight @ position) * (attention.labels.weight @ labels[label])
                )
                scores.append(attention.score.weight @ (attention.mix.weight @ joint))
            weights = torch.cat(scores).softmax(0)
            torch.testing.assert_close(found[image, label], weights @ tokens[image])


def test_labels_of_zeros_get_the_mean():
    attention = LabelAttention(3, 2, 4)
    tokens = torch.rand(1, 7, 3)
    found = attention(tokens, torch.zeros(2, 2))
    torch.testing.assert_close(found[0], tokens.mean(1).expand(2, 3))
