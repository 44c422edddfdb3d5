from __future__ import annotations

import math

import pytest
import torch

from fedquilt.core.noise import GRID_BITS, SeededNoise, SystemNoise, with_noise

COUNT = 100_000


@pytest.mark.parametrize("source", [SeededNoise("test", 1), SystemNoise()])
def test_noise_has_the_variance_it_claims_and_no_covariance(source) -> None:
    drawn = with_noise(torch.zeros(2 * COUNT), 0.5, 3.0, source).reshape(2, COUNT)
    for each in drawn / 1.5:
        assert abs(float(each.mean())) < 3.5 / math.sqrt(COUNT)
        assert abs(float(each.var()) - 1) < 3.5 * math.sqrt(2 / COUNT)
        assert abs(float((each**4).mean()) - 3) < 3.5 * math.sqrt(96 / COUNT)
    covariance = float((drawn[0] * drawn[1]).mean()) / 1.5**2
    assert abs(covariance) < 3.5 / math.sqrt(COUNT)


@pytest.mark.parametrize("source", [SeededNoise("test", 2), SystemNoise()])
def test_uniform_numbers_fill_the_unit_interval(source) -> None:
    drawn = source.uniform(COUNT)
    assert float(drawn.min()) >= 0
    assert float(drawn.max()) < 1
    assert abs(float(drawn.mean()) - 0.5) < 3.5 / math.sqrt(12 * COUNT)


def test_only_seeded_noise_can_be_repeated() -> None:
    same = [with_noise(torch.zeros(50), 1, 1, SeededNoise("a", 1)) for _ in range(2)]
    other = with_noise(torch.zeros(50), 1, 1, SeededNoise("a", 2))
    secret = [with_noise(torch.zeros(50), 1, 1, SystemNoise("a", 1)) for _ in range(2)]
    assert torch.equal(*same)
    assert not torch.equal(same[0], other)
    assert not torch.equal(*secret)


@pytest.mark.parametrize("deviation", [1e-4, 1.0, 750.0])
def test_what_leaves_lies_on_a_grid_that_is_fine_against_the_noise(deviation) -> None:
    values = torch.linspace(-3, 3, 1001, dtype=torch.float64) * math.pi
    left = with_noise(values, deviation, 1.0, SeededNoise("grid"))
    step = 2.0 ** (math.frexp(deviation)[1] - 1 - GRID_BITS)
    assert torch.equal(left, (left / step).round() * step)
    assert step <= deviation * 2.0**-GRID_BITS * 2
    assert 0.8 * deviation < float((left - values).std()) < 1.2 * deviation


def test_noise_is_added_and_not_a_replacement() -> None:
    values = torch.tensor([1000.0, -7.0, 0.25])
    left = with_noise(values, 1e-6, 1.0, SeededNoise("small"))
    assert torch.allclose(left, values.double(), atol=1e-4)
