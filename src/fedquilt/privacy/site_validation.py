"""What a site sends of a validated round: its own exact AUC and loss of each class.

The parts ``validation_auc``, weighted by pairs of a positive and a negative, and
``validation_loss``, weighted by annotated entries. Simulations and studies use the same ones.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from fedquilt.core.payload import Mean, Update
from fedquilt.core.totals import Totals
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
