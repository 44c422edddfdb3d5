"""A site of eight images of six patients and three classes, with every kind of small cell."""

from __future__ import annotations

import torch
from torch import tensor

from fedquilt.data.client_data import ClientData

# Class 0: 5 positives, 3 negatives. Class 1: 1 positive, 7 negatives. Class 2: not annotated.
LABELS = tensor(
    [[1, 0, 0], [1, 0, 0], [1, 0, 0], [1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]]
)
# Of the 5 positives of class 0, the first three are one patient's: 3 patients in 5 images.
PATIENTS = tensor([0, 0, 0, 1, 2, 3, 4, 5])


def site(*, patients: bool = False, name: str = "site") -> ClientData:
    known = torch.ones(8, 3, dtype=torch.bool)
    known[:, 2] = False
    return ClientData(
        name=name,
        images=torch.zeros(8, 1, 4, 4, dtype=torch.uint8),
        indices=torch.arange(8),
        labels=LABELS.to(torch.uint8),
        known=known,
        secret=b"shared",
        patients=PATIENTS if patients else None,
    )
