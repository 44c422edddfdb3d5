"""FedMLP's setting: every client lacks the annotations of the same number of classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedquilt.data.annotations.annotation import Annotation
from fedquilt.data.dealing import deal_evenly, deal_with_owners
from fedquilt.errors import UserError
from fedquilt.seeding import seed_for


@dataclass(frozen=True, kw_only=True)
class Missing(Annotation):
    """Which classes a client lacks is random, but every class has an annotator.

    The authors' code draws for each client alone, so a class can end up without any.
    """

    missing: int  # classes that a client does not annotate, m
    balanced: bool = False  # every class has nearly the same number of annotators
    one_to_one: bool = False  # client i annotates class i alone, as the authors do for m = C - 1

    def mask(self, clients: tuple[str, ...], classes: tuple[str, ...], seed: int) -> Tensor:
        each = len(classes) - self.missing
        if self.missing < 0 or each < 1:
            raise UserError(
                f"missing must be between 0 and {len(classes) - 1} for {len(classes)} classes, "
                f"found {self.missing}"
            )
        if self.one_to_one:
            if each != 1 or len(clients) != len(classes):
                raise UserError(
                    f"one_to_one needs one annotated class per client and as many clients as "
                    f"classes; found {each} per client, {len(clients)} clients and "
                    f"{len(classes)} classes; turn it off or change missing and clients"
                )
            return torch.eye(len(classes), dtype=torch.bool)
        generator = np.random.default_rng(seed_for(seed, "annotation", "missing"))
        counts = {"clients": len(clients), "classes": len(classes), "each": each}
        dealt = (
            deal_evenly(generator, **counts)[0]
            if self.balanced
            else deal_with_owners(generator, **counts)
        )
        return torch.from_numpy(dealt)
