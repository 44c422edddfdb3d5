"""Distances to training images: hand-worked, and as often too far as promised."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedquilt.data.images.pixel_statistics import SMALLEST, pixel_statistics
from fedquilt.metrics.training_distance import TrainingDistance, far_from, fit_distance


def test_distance_counts_deviations_of_each_direction():
    """Along the first axis the deviation is 2, along both others 3: 4/2, 3/3 and 6/3."""
    known = TrainingDistance(np.zeros(3), np.eye(3)[:1], np.array([4.0]), 9.0)
    found = known.of(np.array([[4.0, 0, 0], [0, 3, 0], [4, 0, 6]]))
    assert found == pytest.approx([2, 1, np.sqrt(4 + 4)])


@pytest.mark.parametrize("count", [40, 4000])
def test_all_directions_are_the_mahalanobis_distance(count: int):
    """Fewer numbers than images, or (the smaller matrix) more images than numbers."""
    random = np.random.default_rng(0)
    numbers = random.normal(size=(count, 3)) @ random.normal(size=(3, 3)) + 5
    offset = numbers - numbers.mean(0)
    inverse = np.linalg.inv(offset.T @ offset / count)
    expected = np.sqrt(np.einsum("nd,de,ne->n", offset, inverse, offset))
    assert fit_distance(numbers).of(numbers) == pytest.approx(expected)


def test_more_numbers_than_images():
    random = np.random.default_rng(0)
    numbers = random.normal(size=(30, 50))
    known = fit_distance(numbers)
    assert known.directions @ known.directions.T == pytest.approx(np.eye(7), abs=1e-9)
    widest = np.linalg.svd(numbers - numbers.mean(0))[1][0]
    assert known.variances[0] == pytest.approx(widest**2 / 30)


def test_new_images_are_far_as_often_as_promised():
    """About 1 % of 4,000 new images; by the fitted images' own distances it would be more."""
    random = np.random.default_rng(1)
    numbers, new = random.normal(size=(400, 60)), random.normal(size=(4000, 60))
    flagged = (fit_distance(numbers).of(new) > far_from(numbers, None)).mean()
    assert 0.002 < flagged < 0.03
    naive = np.quantile(fit_distance(numbers).of(numbers), 0.99)
    assert (fit_distance(numbers).of(new) > naive).mean() > 2 * flagged


def test_copies_of_a_patient_do_not_vouch_for_each_other():
    random = np.random.default_rng(2)
    numbers = np.repeat(random.normal(size=(60, 40)), 5, 0) + 1e-3 * random.normal(size=(300, 40))
    patients = [f"p{row // 5}" for row in range(300)]
    assert far_from(numbers, patients) > 2 * far_from(numbers, None)


def test_numbers_that_never_differ_are_no_division_by_zero():
    numbers = np.zeros((60, 4))
    known = fit_distance(numbers)
    assert known.of(numbers) == pytest.approx(np.zeros(60))
    assert known.of(np.ones((1, 4)))[0] > 1e6


def test_pixel_statistics_by_hand():
    """A grey image of two columns, 0 and 51 (0.2), and a red one."""
    grey = torch.tensor([0, 51], dtype=torch.uint8).expand(1, 3, 2, 2)
    red = torch.tensor([255, 0, 0], dtype=torch.uint8).view(1, 3, 1, 1).expand(1, 3, 2, 2)
    found = pixel_statistics(torch.cat([grey, red]))
    log = np.log([0.1 + SMALLEST, SMALLEST, 0.2 + SMALLEST, 4 / 9 + SMALLEST])
    assert found[0].numpy() == pytest.approx([*[0.1] * 3, *[log[0]] * 3, log[1], log[2], log[1]])
    assert found[1].numpy() == pytest.approx([1, 0, 0, *[log[1]] * 5, log[3]], rel=1e-5)
    assert torch.isfinite(pixel_statistics(grey[:, :1, :1, :1])).all()
