"""FedAvg with 100 % labels: a federation's upper bound, had every site annotated everything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedquilt.methods.fedavg import FedAvg


@dataclass(frozen=True, kw_only=True)
class FullLabels(FedAvg):
    """FedAvg on the same clients with every label revealed; possible in simulation only."""

    needs_complete_labels: ClassVar[bool] = True
