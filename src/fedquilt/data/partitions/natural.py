"""The natural partition: clients are the sites or the patients (FLAIR: the users) of the data."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedquilt.core.errors import UserError
from fedquilt.core.wording import counted
from fedquilt.data.dataset import LabelView
from fedquilt.data.partitions.partition import DROPPED, Assignment, Partition

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Natural(Partition):
    """Makes every site or every patient a client; does not depend on the seed."""

    by: Literal["site", "patient"] = "site"
    smallest_client: int = 1  # leave out clients with fewer images

    def assign(self, data: LabelView, seed: int) -> Assignment:
        owners = data.sites if self.by == "site" else data.groups
        if owners is None:
            raise UserError(
                f"the data do not give the {self.by} of each image; name the column that does, "
                "or choose another partition, such as 'iid'"
            )
        sizes = Counter(owners)
        names = sorted(name for name, size in sizes.items() if size >= self.smallest_client)
        if not names:
            raise UserError(
                f"no {self.by} has {counted(self.smallest_client, 'image')}, the largest has "
                f"{max(sizes.values(), default=0)}; lower smallest_client"
            )
        position = {name: number for number, name in enumerate(names)}
        client_of = np.array([position.get(owner, DROPPED) for owner in owners], dtype=np.int64)
        notes = {"dropped_clients": len(sizes) - len(names)}
        assignment = Assignment.from_clients(names, client_of, notes)
        if notes["dropped_clients"]:
            logger.info("natural partition left out %s", dict(assignment.notes))
        return assignment
