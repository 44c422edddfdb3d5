"""Centralised training: the upper bound with all images in one place and every label revealed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from fedquilt.methods.fedavg import FedAvg
from fedquilt.training.local_training import LocalTraining


@dataclass(frozen=True, kw_only=True)
class Centralised(FedAvg):
    """One client that holds everything and keeps its optimiser, with the same number of passes."""

    training: LocalTraining = field(default_factory=lambda: LocalTraining(keep_optimizer=True))

    needs_complete_labels: ClassVar[bool] = True
    needs_pooled_data: ClassVar[bool] = True
