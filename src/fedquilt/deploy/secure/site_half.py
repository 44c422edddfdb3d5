"""SecureSite: a site's half of secure summation, and everything that it refuses."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from torch import Tensor

from fedquilt.deploy.secure import shamir
from fedquilt.deploy.secure.masks import (
    SEED_BYTES,
    Attempt,
    BadKeys,
    PublicKeys,
    masked,
    opened,
    sealed,
    signed_keys,
)
from fedquilt.deploy.secure.terms import FEWEST, fewest_of

SHARE_BYTES = 66  # 521 bits


class RefusedSum(ValueError):
    """Raised by a site that does not go on; the reason is for its log."""


class SumRecord(Protocol):
    """What a site writes to disk about its sums, before it answers."""

    def last_attempt(self, subject: str) -> int: ...

    def survivors(self, subject: str) -> str | None: ...

    def begin(self, subject: str, number: int) -> None: ...

    def unmask(self, subject: str, number: int, survivors: str) -> None: ...


@dataclass
class MemoryRecord:
    """For simulations."""

    attempts: dict[str, int] = field(default_factory=dict)
    unmasked: dict[str, str] = field(default_factory=dict)

    def last_attempt(self, subject: str) -> int:
        return self.attempts.get(subject, -1)

    def survivors(self, subject: str) -> str | None:
        return self.unmasked.get(subject)

    def begin(self, subject: str, number: int) -> None:
        self.attempts[subject] = number

    def unmask(self, subject: str, number: int, survivors: str) -> None:
        self.unmasked[subject] = survivors


@dataclass(repr=False)  # a printed secret is none
class _Secrets:
    """The secrets of one attempt; they are in memory only."""

    attempt: Attempt
    sealing: X25519PrivateKey
    masking: X25519PrivateKey
    own: bytes
    keys: Mapping[str, PublicKeys] = field(default_factory=dict)
    shares: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)  # of own pad, masking key
    has_masked: bool = False
    unmasked: str | None = None


def survivors_hash(survivors: Collection[str]) -> str:
    """What a site keeps, on disk and in its log, of the sites that a sum was unmasked over."""
    return hashlib.sha256(",".join(sorted(survivors)).encode()).hexdigest()


class SecureSite:
    """One site: ``keys``, ``shares``, ``mask`` and ``unmask`` in this order, once per attempt.

    Args:
        name: of the site.
        signer: its long-lived key.
        signers: the public half of every site's, from the study.
        study: the study's hash.
        record: what it remembers on disk.
        check_survivors: raises RefusedSum if some number would come from too few sites.
    """

    def __init__(
        self,
        name: str,
        signer: Ed25519PrivateKey,
        signers: Mapping[str, Ed25519PublicKey],
        study: str,
        record: SumRecord,
        check_survivors: Callable[[Attempt, Collection[str]], None] = lambda attempt, names: None,
    ) -> None:
        self.name = name
        self._signer, self._signers, self._study = signer, signers, study
        self._record, self._check_survivors = record, check_survivors
        self._secrets: _Secrets | None = None

    def keys(self, attempt: Attempt) -> PublicKeys:
        """Begin an attempt: new secrets, and their public halves."""
        self._check_attempt(attempt)
        self._record.begin(attempt.subject, attempt.number)
        sealing, masking = X25519PrivateKey.generate(), X25519PrivateKey.generate()
        own = secrets.token_bytes(SEED_BYTES)
        self._secrets = _Secrets(attempt, sealing, masking, own)
        return signed_keys(attempt, self.name, sealing, masking, self._signer)

    def _check_attempt(self, attempt: Attempt) -> None:
        if attempt.study != self._study:
            raise RefusedSum("the attempt belongs to another study")
        if self.name not in attempt.cohort or list(attempt.cohort) != sorted(set(attempt.cohort)):
            raise RefusedSum("the cohort is not a sorted list of sites with this one among them")
        unknown = set(attempt.cohort) - set(self._signers)
        if unknown:
            raise RefusedSum(f"the cohort has sites of no study: {sorted(unknown)}")
        if len(attempt.cohort) < FEWEST:
            raise RefusedSum(f"a sum needs {FEWEST} sites, the cohort has {len(attempt.cohort)}")
        if attempt.number <= self._record.last_attempt(attempt.subject):
            raise RefusedSum(f"attempt {attempt.number} of {attempt.subject} was already used")

    def shares(self, attempt: Attempt, keys: Mapping[str, PublicKeys]) -> dict[str, bytes]:
        """Return shares of this site's secrets, sealed for every other site."""
        mine = self._of(attempt)
        if mine.keys:
            raise RefusedSum("shares of this attempt were already asked for")
        if not set(keys) <= set(attempt.cohort) or self.name not in keys:
            raise RefusedSum("keys of sites that were not in the cohort")
        self._require(attempt, keys, "sent keys")
        for site, public in keys.items():
            try:
                public.check(attempt, site, self._signers[site])
            except BadKeys as error:
                raise RefusedSum(str(error)) from None
        mine.keys = dict(keys)
        parts = [
            shamir.split(
                int.from_bytes(secret), attempt.threshold, len(attempt.cohort), secrets.randbelow
            )
            for secret in (mine.own, mine.masking.private_bytes_raw())
        ]
        sent = {}
        for site, public in keys.items():
            both = [part[attempt.place(site)].to_bytes(SHARE_BYTES) for part in parts]
            if site == self.name:
                mine.shares[site] = (both[0], both[1])
            else:
                sent[site] = sealed(
                    attempt, mine.sealing, public.sealing, self.name, site, b"".join(both)
                )
        return sent

    def check_ready(self, attempt: Attempt) -> None:
        """Raise RefusedSum unless the vector of this attempt can be asked for."""
        mine = self._of(attempt)
        if mine.has_masked:
            raise RefusedSum("this attempt was already masked: another vector would give it away")
        if not mine.keys:
            raise RefusedSum("the shares of this attempt were not asked for")

    def mask(self, attempt: Attempt, vector: Tensor, inbox: Mapping[str, bytes]) -> Tensor:
        """Return the masked vector, once; ``inbox`` has the shares that others sent."""
        self.check_ready(attempt)
        mine = self._of(attempt)
        if not set(inbox) <= set(mine.keys) - {self.name}:
            raise RefusedSum("shares of sites whose keys were not sent")
        self._require(attempt, [*inbox, self.name], "sent shares")
        for site, text in inbox.items():
            try:
                public = mine.keys[site].sealing
                both = opened(attempt, mine.sealing, public, site, self.name, text)
            except BadKeys as error:
                raise RefusedSum(str(error)) from None
            mine.shares[site] = (both[:SHARE_BYTES], both[SHARE_BYTES:])
        mine.has_masked = True
        others = [(site, mine.keys[site].masking) for site in sorted(inbox)]
        return masked(attempt, self.name, vector, mine.own, mine.masking, others)

    def unmask(self, attempt: Attempt, survivors: Collection[str]) -> dict[str, bytes]:
        """Return a share for each site: of its own pad if its vector arrived, else of its key.

        Never both: with both the server could read that site's vector.
        """
        mine = self._of(attempt)
        names = frozenset(survivors)
        if not mine.has_masked or not names <= set(mine.shares):
            raise RefusedSum("survivors that sent no shares")
        self._require(attempt, names, "survived")
        digest = hashlib.sha256(attempt.context(*sorted(names))).hexdigest()
        if mine.unmasked not in (None, digest):
            raise RefusedSum("this attempt was already unmasked for other survivors")
        hashed, before = survivors_hash(names), self._record.survivors(attempt.subject)
        if before not in (None, hashed):
            raise RefusedSum(
                f"{attempt.subject} was already unmasked for other survivors: the difference of "
                "the two sums would be a single site's"
            )
        self._check_survivors(attempt, names)
        mine.unmasked = digest
        self._record.unmask(attempt.subject, attempt.number, hashed)
        return {site: both[site not in names] for site, both in mine.shares.items()}

    def _of(self, attempt: Attempt) -> _Secrets:
        if self._secrets is None or self._secrets.attempt != attempt:
            raise RefusedSum("this attempt was not begun here, or with another cohort")
        return self._secrets

    def _require(self, attempt: Attempt, names: Collection[str], did: str) -> None:
        fewest = fewest_of(len(attempt.cohort))
        if len(set(names)) < fewest:
            raise RefusedSum(f"only {len(set(names))} sites {did}, at least {fewest} are needed")
