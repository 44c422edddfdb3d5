"""The setting of FedAwS and FedALC: a client knows positives of one class, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.seeding import seed_for
from fedquilt.data.dataset import LabelView, annotated_positives
from fedquilt.data.partitions.partition import Assignment, Partition, refuse_non_positive


@dataclass(frozen=True, kw_only=True)
class PositiveOnly(Partition):
    """Each class has its own clients, which share its positive images and annotate only it.

    An image with several positives goes to one of their classes at random, or to each of them.
    """

    replicas: int = 1  # clients per class
    images: Literal["unique", "replicate"] = "unique"  # may several classes' clients hold one

    def assign(self, data: LabelView, seed: int) -> Assignment:
        refuse_non_positive(replicas=self.replicas)
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
            self._refuse_too_few(name, len(shuffled))
            for replica, part in enumerate(np.array_split(shuffled, self.replicas)):
                names.append(f"{name}-{replica}")
                indices.append(torch.from_numpy(np.sort(part).astype(np.int64)))
                only_this_class = torch.arange(len(data.classes)) == column
                known.append(only_this_class.repeat(len(part), 1))
        return Assignment(
            names=tuple(names),
            indices=tuple(indices),
            known=tuple(known),
            notes={"dropped_images": int((~positives.any(axis=1)).sum())},
        )

    def _refuse_too_few(self, name: str, images: int) -> None:
        if images < self.replicas:
            raise UserError(
                f"class {name!r} has {images} images to itself for {self.replicas} clients; "
                "use fewer replicas, or images = 'replicate', or leave the class out"
            )
