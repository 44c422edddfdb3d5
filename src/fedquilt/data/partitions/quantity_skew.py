"""Quantity skew: clients differ in how many images they hold, not in what the images show."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedquilt.core.seeding import seed_for
from fedquilt.data.dataset import LabelView
from fedquilt.data.partitions.partition import Assignment, Partition
from fedquilt.data.partitions.strata import spread_strata


@dataclass(frozen=True, kw_only=True)
class QuantitySkew(Partition):
    """Gives every client a random sample; the sizes of the samples are Dirichlet shares."""

    clients: int
    concentration: float  # small: a few clients hold most images; large: even
    smallest_client: int = 10  # draw again until every client has this many images
    attempts: int = 100

    def assign(self, data: LabelView, seed: int) -> Assignment:
        return spread_strata(
            np.zeros(len(data.labels), dtype=np.int64),
            clients=self.clients,
            concentration=self.concentration,
            smallest_client=self.smallest_client,
            attempts=self.attempts,
            seed=seed_for(seed, "partition", "quantity-skew"),
        )
