"""Centralised training: the upper bound with all images in one place and all labels known."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from fedquilt.methods.fedavg import FedAvg
from fedquilt.training.local_training import LocalTraining


@dataclass(frozen=True, kw_only=True)
class Centralised(FedAvg):
    """One client holds all images and keeps its optimizer, for the same number of epochs."""

    training: LocalTraining = field(default_factory=lambda: LocalTraining(keep_optimizer=True))

    needs_complete_labels: ClassVar[bool] = True
    needs_pooled_data: ClassVar[bool] = True
