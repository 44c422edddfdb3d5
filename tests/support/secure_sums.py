"""Secure sums in this process: sites and server without a network, and sites that get lost."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from torch import Tensor

from fedquilt.deploy.secure.masks import Attempt
from fedquilt.deploy.secure.server_half import SecureSum
from fedquilt.deploy.secure.site_half import MemoryRecord, SecureSite

Step = Literal["keys", "shares", "train", "unmask"]
STEPS: tuple[Step, ...] = ("keys", "shares", "train", "unmask")
STUDY = "0" * 64


def attempt_of(names: Sequence[str], number: int = 0, subject: str = "train 0") -> Attempt:
    return Attempt(STUDY, subject, number, tuple(sorted(names)))


def make_secure_sites(names: Sequence[str]) -> dict[str, SecureSite]:
    signers = {name: Ed25519PrivateKey.generate() for name in names}
    public = {name: key.public_key() for name, key in signers.items()}
    return {name: SecureSite(name, signers[name], public, STUDY, MemoryRecord()) for name in names}


@dataclass
class Outcome:
    total: Tensor
    survivors: tuple[str, ...]
    sum: SecureSum
    sent: Mapping[str, Tensor]  # masked vectors, by site


def secure_sum(
    sites: Mapping[str, SecureSite],
    vectors: Mapping[str, Tensor],
    attempt: Attempt,
    lost: Mapping[str, Step] | None = None,
) -> Outcome:
    """Run an attempt; ``lost`` says before which step a site falls silent."""
    lost = {} if lost is None else lost
    length = len(next(iter(vectors.values())))
    server = SecureSum(attempt, length)

    def present(step: Step, among: Collection[str]) -> list[str]:
        gone = {name for name, when in lost.items() if STEPS.index(when) <= STEPS.index(step)}
        return [name for name in among if name not in gone]

    for name in present("keys", attempt.cohort):
        server.add_keys(name, sites[name].keys(attempt))
    server.require(len(server.keys), "sent keys")
    for name in present("shares", server.keys):
        server.add_shares(name, sites[name].shares(attempt, server.keys))
    server.require(len(server.senders), "sent shares")
    sent = {}
    for name in present("train", server.senders):
        sent[name] = sites[name].mask(attempt, vectors[name], server.inbox(name))
        server.add_vector(name, sent[name])
    server.require(len(server.survivors), "sent a vector")
    for name in present("unmask", server.survivors):
        server.add_unmasking(name, sites[name].unmask(attempt, server.survivors))
    return Outcome(server.unmasked(), server.survivors, server, sent)
