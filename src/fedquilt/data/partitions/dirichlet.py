"""Dirichlet shares: of every class (FedVLS, MOON), or of every number of findings (FedMLP)."""

from __future__ import annotations

from dataclasses import dataclass

from fedquilt.core.seeding import seed_for
from fedquilt.data.dataset import LabelView, annotated_positives
from fedquilt.data.partitions.partition import Assignment, Partition
from fedquilt.data.partitions.strata import rarest_positive, spread_strata


@dataclass(frozen=True, kw_only=True)
class Dirichlet(Partition):
    """Splits each class over the clients in Dirichlet shares.

    An image counts for its rarest positive class; images without positives form one more class. A
    client that has reached N / K images gets none of the following classes.
    """

    clients: int
    concentration: float  # alpha: small is skewed, large is even
    smallest_client: int = 10  # draw again until every client has this many images
    attempts: int = 100

    def assign(self, data: LabelView, seed: int) -> Assignment:
        positives = annotated_positives(data)
        return spread_strata(
            rarest_positive(positives, positives.sum(axis=0)),
            clients=self.clients,
            concentration=self.concentration,
            smallest_client=self.smallest_client,
            attempts=self.attempts,
            stop_at_mean=True,
            seed=seed_for(seed, "partition", "dirichlet"),
        )


@dataclass(frozen=True, kw_only=True)
class LabelCountDirichlet(Partition):
    """Splits the images with each number of positives over the clients in Dirichlet shares.

    So clients differ in the number of findings per image.
    """

    clients: int
    concentration: float  # alpha: small is skewed, large is even
    smallest_client: int = 1  # draw again until every client has this many images
    attempts: int = 100

    def assign(self, data: LabelView, seed: int) -> Assignment:
        return spread_strata(
            annotated_positives(data).sum(axis=1),
            clients=self.clients,
            concentration=self.concentration,
            smallest_client=self.smallest_client,
            attempts=self.attempts,
            seed=seed_for(seed, "partition", "label-count-dirichlet"),
        )
