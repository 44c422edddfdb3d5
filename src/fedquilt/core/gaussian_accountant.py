"""What Gaussian noise proves: epsilon of releases, and the noise that an epsilon needs.

All of it is (epsilon, delta) for adding or removing one unit (an image, or a patient). A release
adds N(0, (z D)^2) to something that one unit changes by at most D. Without sampling the result is
exact (Balle and Wang, ICML 2018; Dong et al., 2022). With Poisson sampling it is an upper bound by
Renyi divergences (Mironov et al., 2019), with the conversion of Canonne et al. (NeurIPS 2020).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import log_ndtr, logsumexp

from fedquilt.core.errors import UserError

ORDERS = (*(1 + tenth / 10 for tenth in range(1, 100)), *range(11, 64), 80, 128, 256, 512)
LARGEST_EPSILON = 1e4  # beyond it, a number says no more than "nothing is proven"
LARGEST_NOISE = 1e6
HALVINGS = 60  # of a bisection: below the resolution of floats


@dataclass(frozen=True)
class GaussianRelease:
    """``count`` releases with the same noise."""

    noise_multiplier: float  # z: standard deviation by sensitivity
    sampling_rate: float = 1.0  # q: the share of units that a release is drawn from
    count: int = 1


def epsilon_of(releases: Iterable[GaussianRelease], delta: float) -> float:
    """Return the epsilon of all releases together; infinite beyond ``LARGEST_EPSILON``."""
    given = [each for each in releases if each.count > 0]
    if not given:
        return 0.0
    unsampled = _unsampled_epsilon(given, delta)  # sampling only helps
    if all(each.sampling_rate == 1.0 for each in given):
        return unsampled
    return min(unsampled, _renyi_epsilon(given, delta))


def noise_multiplier_for(
    epsilon: float, delta: float, *, sampling_rate: float = 1.0, count: int = 1
) -> float:
    """Return the smallest z with which ``count`` releases cost at most ``epsilon``."""

    def is_enough(noise: float) -> bool:
        return epsilon_of([GaussianRelease(noise, sampling_rate, count)], delta) <= epsilon

    low, high = 1e-3, 1.0
    while not is_enough(high):
        low, high = high, 2 * high
        if high > LARGEST_NOISE:
            raise UserError(f"no noise reaches epsilon = {epsilon:g}; allow a larger one")
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
        if high - low < 1e-6 * high:
            break
    return high


def delta_of(mu: float, epsilon: float) -> float:
    """The delta of Gaussian releases of total strength mu, at this epsilon."""
    left, right = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    return float(np.exp(log_ndtr(left)) - np.exp(epsilon + log_ndtr(right)))


def _unsampled_epsilon(releases: Iterable[GaussianRelease], delta: float) -> float:
    mu = math.sqrt(math.fsum(each.count / each.noise_multiplier**2 for each in releases))
    if delta_of(mu, LARGEST_EPSILON) > delta:
        return math.inf
    low, high = 0.0, LARGEST_EPSILON
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if delta_of(mu, middle) <= delta else (middle, high)
    return high


def _renyi_epsilon(releases: Iterable[GaussianRelease], delta: float) -> float:
    orders = np.array(ORDERS)
    divergence = np.zeros_like(orders)
    for each in releases:
        divergence += each.count * np.array(
            renyi_divergences(each.noise_multiplier, each.sampling_rate)
        )
    epsilons = (
        divergence + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    )
    found = max(0.0, float(epsilons.min()))
    return found if found <= LARGEST_EPSILON else math.inf


@lru_cache(maxsize=1024)
def renyi_divergences(noise: float, rate: float) -> tuple[float, ...]:
    """The Renyi divergence of one release for each of ``ORDERS``."""
    if rate == 1.0:
        return tuple(order / (2 * noise**2) for order in ORDERS)
    return tuple(_renyi_divergence(noise, rate, order) for order in ORDERS)


def _renyi_divergence(noise: float, rate: float, order: float) -> float:
    """log E[((1 - q) + q exp((2x - 1) / (2 z^2)))^order] / (order - 1) over x from N(0, z^2).

    The trapezoid rule on an analytic integrand that ends in Gaussian tails is exact to rounding.
    """
    step = noise / 8
    x = np.arange(-14 * noise, order + 14 * noise, step)
    ratio = np.logaddexp(math.log1p(-rate), math.log(rate) + (2 * x - 1) / (2 * noise**2))
    log_density = -(x**2) / (2 * noise**2) - math.log(noise * math.sqrt(2 * math.pi))
    moment = logsumexp(log_density + order * ratio) + math.log(step)
    return max(0.0, float(moment)) / (order - 1)
