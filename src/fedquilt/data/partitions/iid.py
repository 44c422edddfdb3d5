"""Equal shares of shuffled images: FedMLP's and FedLSM's setting."""

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
    numbered_clients,
    refuse_impossible_count,
)


@dataclass(frozen=True, kw_only=True)
class Iid(Partition):
    """Every client gets a random sample of the same size."""

    clients: int
    remainder: Literal["drop", "spread"] = "drop"  # the images beyond equal shares

    def assign(self, data: LabelView, seed: int) -> Assignment:
        images = len(data.labels)
        refuse_impossible_count(self.clients, images)
        generator = np.random.default_rng(seed_for(seed, "partition", "iid"))
        order = generator.permutation(images)
        kept = images if self.remainder == "spread" else images - images % self.clients
        client_of = np.full(images, DROPPED, dtype=np.int64)
        client_of[order[:kept]] = np.arange(kept) % self.clients
        return Assignment.from_clients(numbered_clients(self.clients), client_of, {})
