"""Stratified halves of a client's images."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, tensor

from fedquilt.data.splits import stratified_halves


def one_class_each(*counts: int) -> Tensor:
    """``counts[c]`` images of class c; the last count is of images without a class."""
    return torch.cat(
        [
            (torch.arange(len(counts) - 1) == column).repeat(count, 1)
            for column, count in enumerate(counts)
        ]
    )


@pytest.mark.parametrize("seed", range(5))
def test_classes_and_sizes_differ_by_at_most_one(seed: int) -> None:
    positives = one_class_each(2, 7, 20, 1, 30)
    first = stratified_halves(positives, seed, "site")
    gap = positives[first].sum(0) - positives[~first].sum(0)
    assert gap.abs().tolist() == [0, 1, 0, 1]
    assert abs(int(first.sum()) - int((~first).sum())) <= 1


@pytest.mark.parametrize("seed", range(5))
def test_rare_positives_are_split_before_common_ones(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    positives = torch.rand(60, 3, generator=generator) < tensor([0.5, 0.3, 0.0])
    positives[:2, 2] = True  # the rarest: two images with any other labels
    first = stratified_halves(positives, seed, "site")
    assert positives[first][:, 2].sum() == positives[~first][:, 2].sum() == 1
    assert abs(int(first.sum()) - int((~first).sum())) <= 1


def test_halves_depend_on_the_names_only() -> None:
    positives = one_class_each(10, 10, 10)
    first = stratified_halves(positives, 0, "site")
    assert torch.equal(stratified_halves(positives, 0, "site"), first)
    assert not torch.equal(stratified_halves(positives, 1, "site"), first)
    assert not torch.equal(stratified_halves(positives, 0, "other"), first)


@pytest.mark.parametrize(("count", "sizes"), [(0, {0}), (1, {0, 1}), (4, {2})])
def test_few_images(count: int, sizes: set[int]) -> None:
    first = stratified_halves(torch.zeros(count, 2, dtype=torch.bool), 0, "site")
    assert {int(first.sum()), int((~first).sum())} == sizes
