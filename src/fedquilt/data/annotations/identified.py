"""FedLSM's setting: every client identifies the same number of classes."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedquilt.data.annotations.annotation import Annotation
from fedquilt.data.dealing import deal_with_owners, refuse_impossible_deal
from fedquilt.seeding import seed_for


@dataclass(frozen=True, kw_only=True)
class Identified(Annotation):
    """Classes are dealt out one by one, then each client is filled up at random.

    The authors fill up from all classes, so a client can draw one that it already has and end
    with fewer; ``published`` does the same and gives the paper's tables, for X-rays from the
    alphabetical class order and for ISIC from the challenge's. Otherwise every client has exactly
    ``identified`` classes.
    """

    identified: int = 3  # classes per client, s
    published: bool = False  # the authors' rule instead of the repaired one
    published_seed: int = 523  # of the paper's tables; used only by the published rule
    class_order: Literal["data", "alphabetical"] = "data"  # the order before shuffling

    def mask(self, clients: tuple[str, ...], classes: tuple[str, ...], seed: int) -> Tensor:
        count = len(classes)
        refuse_impossible_deal(clients=len(clients), classes=count, each=self.identified)
        if self.published:
            dealt = self._published_deal(len(clients), count)
        else:
            generator = np.random.default_rng(seed_for(seed, "annotation", "identified"))
            dealt = deal_with_owners(
                generator, clients=len(clients), classes=count, each=self.identified
            )
        order = list(range(count))
        if self.class_order == "alphabetical":
            order.sort(key=lambda column: classes[column])
        mask = torch.empty(len(clients), count, dtype=torch.bool)
        mask[:, order] = torch.from_numpy(dealt)
        return mask

    def _published_deal(self, clients: int, classes: int) -> npt.NDArray[np.bool_]:
        generator = Random(self.published_seed)  # the standard library's, as the authors'
        shuffled = list(range(classes))
        generator.shuffle(shuffled)
        dealt = np.zeros((clients, classes), dtype=np.bool_)
        for client in range(clients):
            own = shuffled[client::clients]
            extra = generator.sample(shuffled, self.identified - len(own))
            dealt[client, own + extra] = True
        return dealt
