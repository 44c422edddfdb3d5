"""FedAvg with 100 % labels: the upper bound, as if every client had annotated every class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedquilt.methods.fedavg import FedAvg


@dataclass(frozen=True, kw_only=True)
class FullLabels(FedAvg):
    """FedAvg on the same clients with complete labels; possible in simulation only."""

    needs_complete_labels: ClassVar[bool] = True
