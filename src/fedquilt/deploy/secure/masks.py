"""Masks of secure summation: keys, seeds and pads, after Bonawitz et al. (CCS 2017).

Every two sites agree on a seed; one adds its pad, the other subtracts it, so that pads vanish in
the sum. Each site adds a pad of its own, too, which the others can remove with shares of its seed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from torch import Tensor

from fedquilt.deploy.secure.terms import threshold

SEED_BYTES = 32
CHUNK_BYTES = 2**20  # of a pad: it is never held as a whole
NONCE = bytes(12)  # every key encrypts one message


class BadKeys(ValueError):
    """Raised for keys or shares that do not come from whom they claim to."""


@dataclass(frozen=True)
class Attempt:
    """One try to sum one subject of a study over a cohort; signatures and seeds are bound to it."""

    study: str  # its hash
    subject: str  # what is summed, such as "train 7"
    number: int
    cohort: tuple[str, ...]

    @property
    def threshold(self) -> int:
        """So many sites can unmask the sum."""
        return threshold(len(self.cohort))

    def place(self, site: str) -> int:
        return self.cohort.index(site) + 1

    def context(self, *words: str) -> bytes:
        """An unambiguous text of the attempt and some words."""
        described = [self.study, self.subject, self.number, list(self.cohort), *words]
        return json.dumps(["fedquilt secure sum", *described]).encode()


@dataclass(frozen=True)
class PublicKeys:
    """What a site tells all others through the server, signed with its long-lived key."""

    sealing: bytes  # X25519, for messages between two sites
    masking: bytes  # X25519, for the pads between two sites
    signature: bytes

    def check(self, attempt: Attempt, site: str, signer: Ed25519PublicKey) -> None:
        text = _signed_text(attempt, site, self.sealing, self.masking)
        try:
            signer.verify(self.signature, text)
        except InvalidSignature:
            raise BadKeys(f"the keys of {site!r} are not signed by it for this attempt") from None


def signed_keys(
    attempt: Attempt,
    site: str,
    sealing: X25519PrivateKey,
    masking: X25519PrivateKey,
    signer: Ed25519PrivateKey,
) -> PublicKeys:
    public = [key.public_key().public_bytes_raw() for key in (sealing, masking)]
    signature = signer.sign(_signed_text(attempt, site, *public))
    return PublicKeys(public[0], public[1], signature)


def _signed_text(attempt: Attempt, site: str, sealing: bytes, masking: bytes) -> bytes:
    return attempt.context("keys", site, sealing.hex(), masking.hex())


def sealed(
    attempt: Attempt, own: X25519PrivateKey, other: bytes, sender: str, receiver: str, text: bytes
) -> bytes:
    """Encrypt a message from one site to another; the server passes it on and cannot read it."""
    context = attempt.context("shares", sender, receiver)
    encrypted: bytes = AESGCM(_agreed(own, other, context)).encrypt(NONCE, text, context)
    return encrypted


def opened(
    attempt: Attempt, own: X25519PrivateKey, other: bytes, sender: str, receiver: str, text: bytes
) -> bytes:
    context = attempt.context("shares", sender, receiver)
    try:
        plain: bytes = AESGCM(_agreed(own, other, context)).decrypt(NONCE, text, context)
    except InvalidTag:
        raise BadKeys(f"the shares of {sender!r} were changed on their way") from None
    return plain


def pair_seed(attempt: Attempt, own: X25519PrivateKey, other: bytes) -> bytes:
    """The seed of the pad that two sites share."""
    return _agreed(own, other, attempt.context("pair"))


def own_seed(attempt: Attempt, secret: bytes) -> bytes:
    """The seed of the pad that a site adds for itself."""
    return _derived(secret, attempt.context("own"))


def pair_sign(site: str, other: str) -> int:
    """Which of the two adds their pad (1), and which subtracts it (-1)."""
    return 1 if site < other else -1


def add_pad(vector: Tensor, seed: bytes, sign: int) -> None:
    """Add or subtract a seed's pad in place, modulo 2^64."""
    encryptor = Cipher(AES256(seed), CTR(bytes(16))).encryptor()
    size = min(CHUNK_BYTES, vector.nbytes)
    zeros, pad = bytes(size), bytearray(size + 16)
    for part in vector.split(max(size // 8, 1)):
        encryptor.update_into(memoryview(zeros)[: part.nbytes], pad)
        part.add_(torch.frombuffer(pad, dtype=torch.int64, count=len(part)), alpha=sign)


def masked(
    attempt: Attempt,
    site: str,
    vector: Tensor,
    own: bytes,
    masking: X25519PrivateKey,
    others: Sequence[tuple[str, bytes]],
) -> Tensor:
    """Return the vector with the site's own pad and those of its pairs."""
    result = vector.clone()
    add_pad(result, own_seed(attempt, own), 1)
    for other, key in others:
        add_pad(result, pair_seed(attempt, masking, key), pair_sign(site, other))
    return result


def _agreed(own: X25519PrivateKey, other: bytes, context: bytes) -> bytes:
    try:
        shared = own.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError as error:
        raise BadKeys(f"a public key cannot be used: {error}") from None
    return _derived(shared, context)


def _derived(secret: bytes, context: bytes) -> bytes:
    key: bytes = HKDF(hashes.SHA256(), SEED_BYTES, salt=None, info=context).derive(secret)
    return key
