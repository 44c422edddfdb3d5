"""The accountant against numbers of dp-accounting 0.6.0 (PLD) and opacus 1.6.0 (RDP)."""

from __future__ import annotations

import math

import pytest
from scipy.special import comb, logsumexp

from fedquilt.core.errors import UserError
from fedquilt.core.gaussian_accountant import (
    ORDERS,
    GaussianRelease,
    delta_of,
    epsilon_of,
    noise_multiplier_for,
    renyi_divergences,
)

# z, T, delta, epsilon by PLD
UNSAMPLED = [
    (1.0, 1, 1e-5, 4.3772),
    (4.0, 1, 1e-5, 0.9263),
    (10.0, 100, 1e-5, 4.3772),
    (20.0, 100, 1e-5, 1.9931),
    (5.0, 20, 1e-6, 4.3058),
]
# z, q, T, delta, epsilon by RDP (the first and fifth by opacus, others by dp-accounting, which
# tries fewer orders and so finds up to 0.1 more), by PLD
SAMPLED = [
    (1.0, 0.01, 1000, 1e-5, 2.1014, 1.8282),
    (1.0, 0.05, 2000, 1e-5, 17.9215, 16.4886),
    (0.8, 0.02, 500, 1e-5, 5.3719, 4.6680),
    (2.0, 0.1, 300, 1e-6, 5.0821, 4.7128),
    (1.1, 256 / 60000, 14063, 1e-5, 2.5967, 2.3818),
    (0.6, 0.01, 100, 1e-5, 4.8313, 3.8156),
]
# epsilon, z for T = 1, 20, 100 at delta = 1e-5
NOISE = [
    (1.0, 3.7306, 16.6839, 37.3063),
    (3.0, 1.3906, 6.2189, 13.9059),
    (8.0, 0.6002, 2.6843, 6.0023),
]


@pytest.mark.parametrize(("noise", "count", "delta", "expected"), UNSAMPLED)
def test_without_sampling_epsilon_is_exact(noise, count, delta, expected) -> None:
    found = epsilon_of([GaussianRelease(noise, count=count)], delta)
    assert found == pytest.approx(expected, abs=1e-4)
    assert delta_of(math.sqrt(count) / noise, found) == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize(("noise", "rate", "count", "delta", "by_rdp", "by_pld"), SAMPLED)
def test_with_sampling_epsilon_is_an_upper_bound(noise, rate, count, delta, by_rdp, by_pld) -> None:
    found = epsilon_of([GaussianRelease(noise, rate, count)], delta)
    assert by_pld < found < by_rdp + 1e-3


@pytest.mark.parametrize("row", [SAMPLED[0], SAMPLED[4]])
def test_with_sampling_epsilon_is_that_of_opacus(row) -> None:
    noise, rate, count, delta, by_rdp, _ = row
    found = epsilon_of([GaussianRelease(noise, rate, count)], delta)
    assert found == pytest.approx(by_rdp, abs=1e-3)


def test_renyi_divergences_are_those_of_the_binomial_formula() -> None:
    noise, rate = 1.3, 0.07
    found = dict(zip(ORDERS, renyi_divergences(noise, rate)))
    for order in (2, 5, 20, 63):
        terms = [
            math.log(comb(order, k, exact=True))
            + (order - k) * math.log1p(-rate)
            + k * math.log(rate)
            + (k * k - k) / (2 * noise**2)
            for k in range(order + 1)
        ]
        expected = float(logsumexp(terms)) / (order - 1)
        assert found[float(order)] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("row", NOISE)
def test_the_noise_for_an_epsilon(row) -> None:
    for count, expected in zip((1, 20, 100), row[1:]):
        found = noise_multiplier_for(row[0], 1e-5, count=count)
        assert found == pytest.approx(expected, abs=1e-4)


def test_noise_for_sampled_releases_is_enough_and_hardly_more() -> None:
    noise = noise_multiplier_for(3.0, 1e-5, sampling_rate=0.1, count=200)
    assert epsilon_of([GaussianRelease(noise, 0.1, 200)], 1e-5) <= 3.0
    assert epsilon_of([GaussianRelease(noise * 0.999, 0.1, 200)], 1e-5) > 3.0
    with pytest.raises(UserError, match="no noise reaches"):
        noise_multiplier_for(1e-9, 1e-12, count=10**9)


def test_releases_add_up_in_any_grouping() -> None:
    sampled = GaussianRelease(1.5, 0.05, 40)
    halves = [GaussianRelease(1.5, 0.05, 20)] * 2
    assert epsilon_of(halves, 1e-5) == pytest.approx(epsilon_of([sampled], 1e-5))
    both = epsilon_of([sampled, GaussianRelease(4.0)], 1e-5)
    assert both > max(epsilon_of([sampled], 1e-5), epsilon_of([GaussianRelease(4.0)], 1e-5))
    assert epsilon_of([], 1e-5) == 0.0
    assert epsilon_of([GaussianRelease(1.0, count=0)], 1e-5) == 0.0
    assert math.isinf(epsilon_of([GaussianRelease(1e-4)], 1e-5))
