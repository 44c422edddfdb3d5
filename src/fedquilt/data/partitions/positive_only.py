"""The partition of FedAwS and FedALC: a client knows the positives of one class only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.seeding import seed_for
from fedquilt.core.wording import counted
from fedquilt.data.dataset import LabelView, annotated_positives
from fedquilt.data.partitions.partition import Assignment, Partition, check_positive


@dataclass(frozen=True, kw_only=True)
class PositiveOnly(Partition):
    """Splits the positives of each class over its own clients, which annotate only that class.

    An image with several positives goes to one of its classes at random, or to each of them.
    """

    replicas: int = 1  # clients per class
    images: Literal["unique", "replicate"] = "unique"  # "replicate": one client per positive class

    def assign(self, data: LabelView, seed: int) -> Assignment:
        check_positive(replicas=self.replicas)
        generator = np.random.default_rng(seed_for(seed, "partition", "positive-only"))
        positives = annotated_positives(data)
        held = positives
        if self.images == "unique":
            chosen = np.where(positives, generator.random(positives.shape), np.inf).argmin(axis=1)
            held = positives & (np.arange(positives.shape[1]) == chosen[:, None])
        names: list[str] = []
        indices: list[Tensor] = []
        known: list[Tensor] = []
        for column, name in enumerate(data.classes):
            shuffled = generator.permutation(np.flatnonzero(held[:, column]))
            self._check_enough(name, len(shuffled))
            for replica, share in enumerate(np.array_split(shuffled, self.replicas)):
                names.append(f"{name}-{replica}")
                indices.append(torch.from_numpy(np.sort(share).astype(np.int64)))
                only_this_class = torch.arange(len(data.classes)) == column
                known.append(only_this_class.repeat(len(share), 1))
        return Assignment(
            names=tuple(names),
            indices=tuple(indices),
            known=tuple(known),
            notes={"dropped_images": int((~positives.any(axis=1)).sum())},
        )

    def _check_enough(self, name: str, images: int) -> None:
        if images < self.replicas:
            raise UserError(
                f"class {name!r} has {counted(images, 'image')} for "
                f"{counted(self.replicas, 'client')}; use fewer "
                "replicas, or images = 'replicate', or leave the class out"
            )
