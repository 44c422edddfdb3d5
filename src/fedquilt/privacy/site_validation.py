"""What a site sends of a validated round: its own exact AUC and loss of each class.

The parts ``validation_auc``, weighted by pairs of a positive and a negative, and
``validation_loss``, weighted by annotated entries. Simulations and studies use the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from fedquilt.core.payload import Mean, Update, weight_of
from fedquilt.core.totals import Totals
from fedquilt.core.update_checks import RefusedUpdate
from fedquilt.data.client_data import ClientData
from fedquilt.metrics.ranking import roc_auc
from fedquilt.training.provenance import images_of, patients_of

AUC_PART, LOSS_PART = "validation_auc", "validation_loss"
VALIDATION_PARTS = (AUC_PART, LOSS_PART)


def validation_parts(logits: Tensor, data: ClientData, min_cell: int = 0) -> Update:
    """Return a site's parts from the logits (n, C) of its validation images.

    A class with fewer than ``min_cell`` patients on either side has value and weight 0 in both.
    """
    logits, known = logits.double().cpu(), data.known.cpu()
    positives = known & (data.labels.cpu() == 1)
    counts = torch.stack([positives.sum(0), (known & ~positives).sum(0)]).double()
    small = torch.zeros(known.shape[1], dtype=torch.bool)
    if min_cell > 1:
        small = (patients_of(images_of("sides", data), data) < min_cell).any(-1)
    pairs = counts.prod(0).masked_fill(small, 0.0)
    auc = roc_auc(logits, data.labels, data.known).nan_to_num(0.0).masked_fill(pairs == 0, 0.0)
    entries = counts.sum(0).masked_fill(small, 0.0)
    losses = binary_cross_entropy_with_logits(logits, positives.double(), reduction="none")
    loss = losses.where(known, 0.0).sum(0) / counts.sum(0).clamp(min=1)
    loss = loss.masked_fill(entries == 0, 0.0)
    return {AUC_PART: Mean(auc, pairs), LOSS_PART: Mean(loss, entries)}


def expected_validation(class_count: int) -> Update:
    """Return parts of the names, kinds and shapes that every site sends."""
    nothing = torch.zeros(class_count, dtype=torch.float64)
    return {part: Mean(nothing, nothing) for part in VALIDATION_PARTS}


def validation_result(totals: Totals, classes: tuple[str, ...]) -> dict[str, Any]:
    """Return ``site_auc``, ``loss`` and ``per_class_auc`` over all sites; undefined is None.

    ``site_auc`` is the mean over the classes that any site can judge. It is the AUC within sites:
    pairs of images of two sites are missing in it, so it is not the AUC of the pooled images.
    """
    weight = totals.weight(AUC_PART)
    auc = totals.mean(AUC_PART, otherwise=torch.zeros_like(weight))
    entries = totals.weight(LOSS_PART)
    losses = totals.mean(LOSS_PART, otherwise=torch.zeros_like(entries))
    judged = weight > 0
    per_class = zip(classes, auc.tolist(), judged.tolist())
    return {
        "site_auc": float(auc[judged].mean()) if bool(judged.any()) else None,
        "loss": float((losses * entries).sum() / entries.sum()) if entries.any() else None,
        "per_class_auc": {name: value if usable else None for name, value, usable in per_class},
    }


class ValidationCheck:
    """The server's check of what sites claim: right ranges, and the same weights in all rounds.

    A site validates on the same images in every round, so only the AUC and the loss may change.
    """

    def __init__(self, annotated: Callable[[str], Tensor], classes: tuple[str, ...]) -> None:
        self._annotated, self._classes = annotated, classes
        self._weights: dict[tuple[str, str], Tensor] = {}

    def __call__(self, site: str, update: Update) -> None:
        """Raise RefusedUpdate; names, shapes and weights must have been checked before."""
        foreign = ~self._annotated(site)
        for name in VALIDATION_PARTS:
            part = update[name]
            assert isinstance(part, Mean)
            assert isinstance(part.value, Tensor)
            value, weight = part.value, weight_of(part)
            where = f"client {site!r}, part {name!r}"
            if bool((weight[foreign] > 0).any()):
                unknown = self._classes[int((foreign & (weight > 0)).nonzero()[0])]
                raise RefusedUpdate(f"{where}: it judges {unknown!r}, which it does not annotate")
            most = 1.0 if name == AUC_PART else math.inf
            if bool(((value < 0) | (value > most)).any()):
                raise RefusedUpdate(f"{where}: a value lies outside of 0 to {most:g}")
            if not torch.equal(self._weights.get((site, name), weight), weight):
                raise RefusedUpdate(
                    f"{where}: its weights differ from those of the round before; a site's "
                    "validation images must not change during a study"
                )
        pairs, entries = (weight_of(update[name]) for name in VALIDATION_PARTS)  # type: ignore[arg-type]
        if bool((pairs > (entries / 2) ** 2).any()):
            raise RefusedUpdate(
                f"client {site!r}, part {AUC_PART!r}: more pairs than its entries can make"
            )
        self._weights |= {(site, AUC_PART): pairs, (site, LOSS_PART): entries}
