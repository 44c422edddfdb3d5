"""Shamir's secret sharing over a prime field: any ``threshold`` shares give the secret, fewer none.

Shamir, "How to share a secret", 1979.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

PRIME = 2**521 - 1  # a Mersenne prime, above any secret of 64 bytes


def split(
    secret: int, threshold: int, count: int, draw: Callable[[int], int], prime: int = PRIME
) -> dict[int, int]:
    """Return the shares at 1 to ``count``; ``draw(n)`` is a random number below n."""
    coefficients = [secret, *(draw(prime) for _ in range(threshold - 1))]

    def share(place: int) -> int:
        value = 0
        for coefficient in reversed(coefficients):
            value = (value * place + coefficient) % prime
        return value

    return {place: share(place) for place in range(1, count + 1)}


def join(shares: Mapping[int, int], prime: int = PRIME) -> int:
    """Return the secret: the polynomial through the shares, at 0."""
    total = 0
    for place, share in shares.items():
        others = [other for other in shares if other != place]
        top = prod(-other for other in others)
        bottom = prod(place - other for other in others)
        total += share * top * pow(bottom, -1, prime)
    return total % prime
