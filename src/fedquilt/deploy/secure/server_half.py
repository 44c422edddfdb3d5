"""SecureSum: the server's half of secure summation. It never holds an unmasked vector of a site."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from torch import Tensor

from fedquilt.deploy.secure import shamir
from fedquilt.deploy.secure.masks import (
    SEED_BYTES,
    Attempt,
    PublicKeys,
    add_pad,
    own_seed,
    pair_seed,
    pair_sign,
)
from fedquilt.deploy.secure.terms import fewest_of


class SumAborted(ValueError):
    """Raised when too few sites are left; nothing can be unmasked then."""


class SecureSum:
    """Passes messages on, adds masked vectors as they arrive, and removes the masks at the end.

    Besides the sum it holds one vector of a site, while that is added.
    """

    def __init__(self, attempt: Attempt, length: int) -> None:
        self.attempt, self._length = attempt, length
        self.keys: dict[str, PublicKeys] = {}
        self._sealed: dict[str, Mapping[str, bytes]] = {}  # by sender and receiver
        self._total = torch.zeros(length, dtype=torch.int64)
        self._arrived: dict[str, None] = {}
        self._shares: dict[str, Mapping[str, bytes]] = {}  # by who answered

    def add_keys(self, site: str, keys: PublicKeys) -> None:
        self.keys[site] = keys

    def add_shares(self, site: str, texts: Mapping[str, bytes]) -> None:
        if set(texts) != set(self.keys) - {site}:
            raise ValueError(f"{site!r} did not send shares to exactly the others")
        self._sealed[site] = texts

    def inbox(self, site: str) -> dict[str, bytes]:
        """Return the shares that others sent to this site."""
        return {sender: texts[site] for sender, texts in self._sealed.items() if sender != site}

    @property
    def senders(self) -> tuple[str, ...]:
        """The sites whose shares arrived: each of them masks with all the others."""
        return tuple(sorted(self._sealed))

    def add_vector(self, site: str, vector: Tensor) -> None:
        if site not in self._sealed or site in self._arrived:
            raise ValueError(f"{site!r} sent no shares, or two vectors")
        if vector.dtype != torch.int64 or vector.shape != (self._length,):
            raise ValueError(
                f"{site!r} sent {vector.dtype} of shape {tuple(vector.shape)}, expected "
                f"{self._length} integers of 64 bits"
            )
        self._total.add_(vector)
        self._arrived[site] = None

    @property
    def survivors(self) -> tuple[str, ...]:
        """The sites whose vectors arrived."""
        return tuple(sorted(self._arrived))

    def add_unmasking(self, site: str, shares: Mapping[str, bytes]) -> None:
        if site not in self._arrived or set(shares) != set(self._sealed):
            raise ValueError(f"{site!r} did not send a share for every site")
        self._shares[site] = shares

    def require(self, count: int, did: str) -> None:
        """Raise SumAborted if so few sites cannot unmask the sum."""
        fewest = fewest_of(len(self.attempt.cohort))
        if count < fewest:
            raise SumAborted(
                f"{self.attempt.subject}: {count} of {len(self.attempt.cohort)} sites {did}, at "
                f"least {fewest} are needed to unmask the sum"
            )

    def unmasked(self) -> Tensor:
        """Return the sum of the survivors' vectors; the total becomes it, in place."""
        self.require(len(self._shares), "helped to unmask")
        for site in self.survivors:
            secret = self._secret_of(site)
            add_pad(self._total, own_seed(self.attempt, secret), -1)
        for lost in sorted(set(self._sealed) - set(self._arrived)):
            key = X25519PrivateKey.from_private_bytes(self._secret_of(lost))
            for site in self.survivors:
                seed = pair_seed(self.attempt, key, self.keys[site].masking)
                add_pad(self._total, seed, -pair_sign(site, lost))
        return self._total

    def _secret_of(self, site: str) -> bytes:
        helpers = sorted(self._shares)[: self.attempt.threshold]
        shares = {
            self.attempt.place(helper): int.from_bytes(self._shares[helper][site])
            for helper in helpers
        }
        try:
            return shamir.join(shares).to_bytes(SEED_BYTES)
        except OverflowError:
            raise SumAborted(
                f"{self.attempt.subject}: the shares for {site!r} do not fit together; one of "
                f"{', '.join(helpers)} sent a wrong one"
            ) from None
