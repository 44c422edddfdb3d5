"""The IID partition: equal shares of shuffled images, as in FedMLP and FedLSM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedquilt.core.seeding import seed_for
from fedquilt.data.dataset import LabelView
from fedquilt.data.partitions.partition import (
    DROPPED,
    Assignment,
    Partition,
    check_client_count,
    numbered_clients,
)


@dataclass(frozen=True, kw_only=True)
class Iid(Partition):
    """Gives every client a random sample of the same size."""

    clients: int
    remainder: Literal["drop", "spread"] = "drop"  # what happens to images beyond equal shares

    def assign(self, data: LabelView, seed: int) -> Assignment:
        images = len(data.labels)
        check_client_count(self.clients, images)
        generator = np.random.default_rng(seed_for(seed, "partition", "iid"))
        order = generator.permutation(images)
        kept = images if self.remainder == "spread" else images - images % self.clients
        client_of = np.full(images, DROPPED, dtype=np.int64)
        client_of[order[:kept]] = np.arange(kept) % self.clients
        return Assignment.from_clients(numbered_clients(self.clients), client_of, {})
