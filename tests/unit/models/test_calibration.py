from __future__ import annotations

import pytest
import torch
from torch import Tensor, tensor

from fedquilt.models.calibration import class_moments, ridge_rows


def case(count: int = 40) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    features = torch.randn(count, 6, generator=generator, dtype=torch.float64)
    positives = torch.rand(count, 3, generator=generator) < 0.4
    known = torch.rand(count, 3, generator=generator) < 0.7
    return features, positives, known


def solve(moments: tuple[Tensor, Tensor], ridge: float = 0.5) -> Tensor:
    return ridge_rows(*moments, ridge, torch.zeros(3, 6, dtype=torch.float64))


def test_one_class_by_hand():
    # v = e1, e2, e1 with labels 1, 0, 0: A = diag(2, 1), B = (1, 0); with ridge 1 the row (1/3, 0).
    features = tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    positives = tensor([[True], [False], [False]])
    squares, products = class_moments(features, positives, torch.ones(3, 1, dtype=torch.bool))
    assert squares.tolist() == [[[2.0, 0.0], [0.0, 1.0]]]
    assert products.tolist() == [[1.0, 0.0]]
    rows = ridge_rows(squares, products, 1.0, torch.zeros(1, 2))
    assert rows.tolist()[0] == pytest.approx([1 / 3, 0.0])


def test_the_sum_over_clients_gives_the_pooled_solution():
    features, positives, known = case()
    pooled = solve(class_moments(features, positives, known))
    order = torch.randperm(len(features), generator=torch.Generator().manual_seed(1))
    clients = [
        class_moments(features[rows], positives[rows], known[rows])
        for rows in order.split([7, 20, 13])
    ]
    summed = solve((sum(sent[0] for sent in clients), sum(sent[1] for sent in clients)))
    assert torch.allclose(summed, pooled, rtol=0, atol=1e-12)


def test_with_full_labels_it_is_plain_ridge_regression():
    features, positives, known = case()
    found = solve(class_moments(features, positives, torch.ones_like(known)))
    regularised = features.T @ features + 0.5 * torch.eye(6, dtype=torch.float64)
    expected = torch.linalg.solve(regularised, features.T @ positives.double()).T
    assert torch.allclose(found, expected, rtol=0, atol=1e-12)


def test_unannotated_labels_have_no_effect():
    features, positives, known = case()
    garbage = class_moments(features, positives | ~known, known)
    assert torch.equal(solve(garbage), solve(class_moments(features, positives, known)))


def test_a_class_without_annotation_keeps_its_row():
    features, positives, known = case()
    known[:, 1] = False
    before = torch.arange(18.0).view(3, 6)
    rows = ridge_rows(*class_moments(features, positives, known), 0.5, before)
    assert rows[1].tolist() == before[1].tolist()
    assert not torch.equal(rows[0], before[0])
    assert rows.dtype == before.dtype


def test_a_strong_ridge_shrinks_every_row_to_0():
    assert solve(class_moments(*case()), ridge=1e12).abs().max() < 1e-9
