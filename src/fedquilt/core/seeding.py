"""Random seeds derived from names, not from the order of calls, so that runs can resume."""

from __future__ import annotations

import hashlib

import torch


def seed_for(*names: int | str) -> int:
    """Return a 63-bit seed for a purpose, e.g. ``seed_for(run_seed, round, client)``."""
    text = "\x1f".join(f"{type(name).__name__}:{name}" for name in names)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator_for(*names: int | str) -> torch.Generator:
    return torch.Generator().manual_seed(seed_for(*names))


def seed_network_draws(device: torch.device, *names: int | str) -> None:
    """Seed the default generators that dropout and similar layers use on ``device``.

    ``torch.manual_seed`` visits every kind of accelerator and stores a stack trace for each one
    that is not initialised, which takes 2 % of a small network's round.
    """
    seed = seed_for(*names)
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
