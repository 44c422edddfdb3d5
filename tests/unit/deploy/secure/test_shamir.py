"""Shamir's sharing: an oracle by hand, and what fewer shares say."""

from __future__ import annotations

import random
import secrets

from fedquilt.deploy.secure.shamir import PRIME, join, split


def test_a_line_modulo_97() -> None:
    shares = split(42, threshold=2, count=3, draw=lambda below: 7, prime=97)  # 42 + 7 x
    assert shares == {1: 49, 2: 56, 3: 63}
    assert join({1: 49, 3: 63}, prime=97) == 42
    assert join(shares, prime=97) == 42


def test_any_threshold_of_shares_gives_the_secret_and_fewer_do_not() -> None:
    choose = random.Random(0)
    for _ in range(20):
        count = choose.randrange(3, 12)
        threshold = choose.randrange(2, count + 1)
        secret = choose.getrandbits(512)
        shares = split(secret, threshold, count, secrets.randbelow)
        chosen = choose.sample(sorted(shares), threshold)
        assert join({place: shares[place] for place in chosen}) == secret
        assert join({place: shares[place] for place in chosen[1:]}) != secret


def test_one_share_fewer_fits_every_secret() -> None:
    """Modulo 97 with threshold 2: for the share (1, 49) each secret has its own slope."""
    assert {(49 - secret) % 97 for secret in range(97)} == set(range(97))


def test_secrets_of_32_bytes_fit_the_prime() -> None:
    assert PRIME > 2**256
    top = 2**256 - 1
    assert join(split(top, 3, 5, secrets.randbelow)) == top
